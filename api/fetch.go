package api

import "fmt"

// Fetch is how far the fetch of a server's packages is.
type Fetch struct {
	Package string `json:"package"`
	Bytes   int64  `json:"bytes"`           // that are there
	Total   int64  `json:"total,omitempty"` // zero where that is not known
}

// String is like "fetching, 34 MB of 80".
func (f *Fetch) String() string {
	switch mb := func(n int64) int64 { return (n + 500_000) / 1_000_000 }; {
	case f.Total > 0:
		return fmt.Sprintf("fetching, %d MB of %d", mb(f.Bytes), max(1, mb(f.Total)))
	case f.Bytes > 0:
		return fmt.Sprintf("fetching, %d MB", mb(f.Bytes))
	}
	return "fetching"
}
