"""`fatura events`: follow an account's events, and deliver events again. Entry point: `command.app`."""
