// Package torture tells tests how hard to try. make test runs one of each kind,
// small; make torture builds with the tag torture and runs all of them at full
// size. A test that runs under torture alone has the tag on its file.
package torture

// Or returns full under make torture and quick otherwise.
func Or[T any](quick, full T) T {
	if on {
		return full
	}
	return quick
}
