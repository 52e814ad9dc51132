"""Every JSON object that a client sees, written once: answers, events and the OpenAPI document are made of these."""
