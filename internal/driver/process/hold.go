package process

import "context"

// Hold implements driver.Instance. No frame enters, and where the system can stop
// processes those of the instance are: what they keep on disk does not change, so that a
// copy of it is one that a crash at that moment could have left. A process that is found
// and does not stop makes it fail.
//
// A process that left the group, cleared its environment and closed the pipes is
// not found, and goes on.
func (i *instance) Hold(ctx context.Context) (release func(), err error) {
	return i.HoldWith(ctx, func() (func(), error) {
		enter := i.conn.Hold()
		goOn := func() {
			i.child.thaw()
			enter()
		}
		if settles {
			if err := i.conn.Settle(ctx); err != nil {
				return goOn, err
			}
		}
		return goOn, i.child.freeze(func() error {
			if err := i.MayHold(); err != nil {
				return err
			}
			return ctx.Err()
		})
	})
}

// part makes the instance run again where it is held, for a stop or the next
// gateway, and allows no other hold.
func (i *instance) part() {
	i.Part()
	i.child.thaw()
}
