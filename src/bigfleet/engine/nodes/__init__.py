"""What clusters that report placement say: sessions, node reports and what follows from them (`docs/engine.md` §10)."""
