//go:build race

package sqlite

// underRace: SQLite is a hundred times slower with the race detector.
const underRace = true
