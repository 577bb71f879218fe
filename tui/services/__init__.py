"""Operations shared by console and command line, for one environment; nothing here prints, asks or imports a screen."""
