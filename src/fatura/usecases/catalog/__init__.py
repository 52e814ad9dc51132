"""Create, change and archive products and plans, propagate plan versions, mirror products to gateways."""
