"""What an environment allows, asks an approval for or denies, and when nothing is applied."""
