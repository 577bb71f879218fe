"""What console and command line both do, bound to one environment; nothing here prints, asks or imports a screen."""
