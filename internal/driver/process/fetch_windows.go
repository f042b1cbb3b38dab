package process

// fetching is empty: what npx and uvx fetch is part of their start here.
type fetching struct{}

// Close lets go of nothing.
func (d *Driver) Close() error { return nil }

func (d *Driver) sweepFetches() error { return nil }
