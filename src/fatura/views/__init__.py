"""The definition of every JSON object that a client sees. Answers, events and the OpenAPI document use these views."""
