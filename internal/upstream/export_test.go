package upstream

var (
	Cause   = cause
	HintFor = hintFor
)
