//go:build !linux && !darwin

package workspace

import "errors"

func makePipe(string) error { return errors.ErrUnsupported }
