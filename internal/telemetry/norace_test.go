//go:build !race

package telemetry

// raceEnabled lets long tests take fewer steps where each costs ten times as much.
const raceEnabled = false
