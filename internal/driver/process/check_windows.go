package process

// CheckPipes finds nothing wrong: instances don't use named pipes here.
func CheckPipes(string) error { return nil }
