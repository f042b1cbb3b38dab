package config

// Moved lists the servers of a tine.yaml that mean something else in one folder
// than in another: they have paths that start at the folder of their file.
func Moved(yaml []byte, from, to string) []string {
	read := func(path string) *Config {
		opts := importOptions()
		opts.Path = path
		c, err := Parse(yaml, opts)
		if err != nil {
			return nil
		}
		return c
	}
	a, b := read(from), read(to)
	if a == nil || b == nil {
		return nil
	}
	return Diff(a, b).Changed
}
