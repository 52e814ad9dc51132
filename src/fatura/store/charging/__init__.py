"""SQL of charge attempts, the schedule of issuing and polling invoices, late charge checks and gateway connections."""
