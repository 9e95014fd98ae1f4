"""Stage 9: verdicts, scores, tasks and machines as text for people; what programs read is the plain data itself."""
