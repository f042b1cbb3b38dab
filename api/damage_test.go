package api

import (
	"testing"
	"time"
)

// Several losses of one server are one damage, with the first and the last of them.
func TestAddDamage(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var all []Damage
	for i, why := range []string{"it was stopped", "it was stopped", "it was killed; its last words: no"} {
		all = AddDamage(all, Damage{Server: "a", At: at.Add(time.Duration(i) * time.Hour), Why: why, Kept: KeptNothing})
	}
	all = AddDamage(all, Damage{Server: "a", At: at, Why: "it ended", Kept: KeptFiles})
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	if got, want := all[0].Text(), `server "a": it was stopped; kept: nothing (3 times, the last at 2026-01-02T05:04:05Z: it was killed)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := all[1].Text(), `server "a": it ended; kept: files`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for range 2 {
		all = RemoveDamage(all, all[0])
	}
	if got, want := all[0].Text(), `server "a": it was stopped; kept: nothing`; got != want || !all[0].Last.IsZero() {
		t.Errorf("got %s, want %s", got, want)
	}
}
