"""Payment gateways behind one port."""
