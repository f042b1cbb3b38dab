package main

// confine starts the helper, and takes from this process what it does not need any more,
// once.
func (h *rlmHelper) confine() error {
	if h == nil {
		return nil
	}
	return h.begin()
}
