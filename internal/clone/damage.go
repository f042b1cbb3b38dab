package clone

import "fmt"

// Damage says that a copy is not what it was when it was made.
type Damage struct {
	Path   string
	Offset int64 // -1 where it is not known
	Reason string
	Extra  bool // the file is one that was added
}

func (d *Damage) Error() string {
	if d.Offset < 0 {
		return fmt.Sprintf("%s is damaged: %s", d.Path, d.Reason)
	}
	return fmt.Sprintf("%s is damaged at offset %d: %s", d.Path, d.Offset, d.Reason)
}
