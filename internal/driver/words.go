package driver

import "errors"

// A WordsError is an error with what a program wrote to its standard error before
// it. The words may repeat what was said in a call, and so are not part of the
// error's text: not everybody who is told of the error may read them.
type WordsError struct {
	Err   error
	Words string
}

func (e *WordsError) Error() string { return e.Err.Error() }

func (e *WordsError) Unwrap() error { return e.Err }

// WithWords adds to an error what a program wrote; nothing where it wrote nothing.
func WithWords(err error, words string) error {
	if words == "" {
		return err
	}
	return &WordsError{err, words}
}

// Words is what a program wrote before an error, and empty where that is not known.
func Words(err error) string {
	var w *WordsError
	if errors.As(err, &w) {
		return w.Words
	}
	return ""
}
