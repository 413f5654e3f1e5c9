"""Every metric that a panel or a rule uses, with its title, meaning, unit and type, written once."""
