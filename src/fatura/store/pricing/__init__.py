"""SQL for the schedule of price calls, the calls, and the values of variable items."""
