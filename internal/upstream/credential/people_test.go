package credential

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// Whoever comes has an account at a server that wants a login of each, and most
// never log in there. They must not pile up, and a connection that was made
// before the login must find it afterwards.
func TestPeopleWithoutALoginAreForgotten(t *testing.T) {
	r := newRig(t)
	set := r.login()
	set.PerPrincipal = true
	early := r.Wrap(set, "ada", r.next)
	_, _, err := r.call(early, "b")
	refused(t, err, api.KindRefused, false, "nobody has logged in")
	r.enroll(set, "bob", "bob")
	late := r.Wrap(set, "bob", r.next)
	r.must(late, "b", "bob:b")
	crowd := func() {
		for i := range 4 * leastPeople {
			who := fmt.Sprint("guest-", i)
			if i%2 == 0 {
				r.State(context.Background(), set, who)
				continue
			}
			_, _, err := r.call(r.Wrap(set, who, r.next), "b")
			refused(t, err, api.KindRefused, false, "nobody has logged in")
		}
	}
	crowd()
	count := func() (n int, ada, bob bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.people), r.people[account{"x", "ada"}] != nil, r.people[account{"x", "bob"}] != nil
	}
	if n, ada, bob := count(); n > 2*leastPeople || ada || !bob {
		t.Errorf("%d people are remembered, ada %v, bob %v", n, ada, bob)
	}
	r.enroll(set, "ada", "ada")
	r.must(early, "b", "ada:b")
	r.must(late, "b", "bob:b")
	if err := r.Logout(context.Background(), set, "ada"); err != nil {
		t.Fatal(err)
	}
	crowd()
	if n, ada, bob := count(); n > 2*leastPeople || ada || !bob {
		t.Errorf("%d people are remembered, ada %v, bob %v", n, ada, bob)
	}
	_, _, err = r.call(early, "b")
	refused(t, err, api.KindRefused, false, "nobody has logged in")
}

// Logins, logouts and calls of one person while the others come and go.
func TestPeopleComeAndGoAtOnce(t *testing.T) {
	r := newRig(t)
	set := r.login()
	set.PerPrincipal = true
	rt := r.Wrap(set, "ada", r.next)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				r.State(context.Background(), set, fmt.Sprint("guest-", i))
			}
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.mu.Lock()
				r.sweep()
				r.mu.Unlock()
				_, _, _ = r.call(rt, "b")
			}
		}
	})
	for range 20 {
		r.enroll(set, "ada", "ada")
		r.must(rt, "b", "ada:b")
		if !r.State(context.Background(), set, "ada").LoggedIn {
			t.Error("a login is not seen")
		}
		if err := r.Logout(context.Background(), set, "ada"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.call(rt, "b"); err == nil {
			t.Error("a login that has ended is still used")
		}
	}
	close(stop)
	wg.Wait()
}
