"""Work that is due later: purging the trash, stopping replaced versions, reporting overdue tickets."""
