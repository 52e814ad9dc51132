"""The use cases, one package for each capability. They open the transactions and call the steps in order."""
