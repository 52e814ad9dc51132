"""Events, deliveries and the webhook."""
