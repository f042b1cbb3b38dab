package upstream

var (
	Cause = cause
	Hints = hints
)
