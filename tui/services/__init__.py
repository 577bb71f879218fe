"""Operations on one environment, shared by console and command line; they do not print, prompt or import screens."""
