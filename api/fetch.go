package api

import "fmt"

// Fetch is the progress of the fetch of a server's packages.
type Fetch struct {
	Package string `json:"package"`
	Bytes   int64  `json:"bytes"`           // that are fetched
	Total   int64  `json:"total,omitempty"` // zero where that is not known
}

// String is like "fetching, 34 MB of 80".
func (f *Fetch) String() string {
	const mb = 1_000_000
	switch done, total := (f.Bytes+mb/2)/mb, (f.Total+mb/2)/mb; {
	case total > 0:
		return fmt.Sprintf("fetching, %d MB of %d", done, total)
	case done > 0:
		return fmt.Sprintf("fetching, %d MB", done)
	}
	return "fetching"
}
