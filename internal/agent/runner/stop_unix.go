//go:build linux || darwin

package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// sizeEvery is how often the sizes of a program's output are looked at while nobody
// follows it.
const sizeEvery = 2 * time.Second

// tended makes a program, which it has watched until it ends.
func (h *programs) tended(dir string, rec record, watch procid.Watcher) *program {
	p := h.program(dir, rec)
	p.watch = watch
	go p.tend()
	return p
}

func (h *programs) program(dir string, rec record) *program {
	p := &program{h: h, dir: dir, id: rec.ID, kin: h.family(dir, rec), rec: rec, posts: newPosts(dir, rec.Pass.Run, h.limits), ended: make(chan struct{}), tended: make(chan struct{})}
	p.at.begin(rec.Turn)
	return p
}

// takes is where the events go that the program posts.
func (p *program) takes() *posts { return p.posts }

func (p *program) tend() {
	defer close(p.tended)
	for {
		exited, ok := p.watch.Wait(sizeEvery)
		if !ok {
			return
		}
		if exited {
			break
		}
		if p.tooMuch() != nil {
			p.kill()
		}
	}
	p.mu.Lock()
	// Before the reaping: until then the number of the group is no other's.
	syscall.Kill(-p.id.PID, syscall.SIGKILL)
	reap(p.id.PID)
	p.reaped = true
	p.mu.Unlock()
	now := func() time.Time { return time.Time{} }
	p.conclude(errors.Join(family.EndGroup(p.id.PID, now), p.h.census.End(p.kin)))
}

// reap waits for the shell, which is a child of ours unless it was adopted.
func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); err != syscall.EINTR {
			return
		}
	}
}

// conclude says that the program has ended.
func (p *program) conclude(err error) {
	p.exit, p.endErr = exitOf(p.dir), err
	p.mu.Lock()
	if p.exit.Status < 0 && p.killed {
		p.exit.Signal = "KILL"
	}
	p.mu.Unlock()
	close(p.ended)
}

// exitOf reads how a program has ended. Where there is no status, its shell was killed.
func exitOf(dir string) executor.Exit {
	text, err := os.ReadFile(filepath.Join(dir, statusName))
	number, whole := bytes.CutSuffix(text, []byte("\n"))
	if err != nil || !whole {
		return executor.Exit{Status: -1}
	}
	status, err := strconv.Atoi(string(number))
	if err != nil {
		return executor.Exit{Status: -1}
	}
	exit := executor.Exit{Status: status}
	if name := unix.SignalName(syscall.Signal(status - 128)); status > 128 && name != "" {
		exit.Signal = strings.TrimPrefix(name, "SIG")
	}
	return exit
}

// signal signals the group of the program.
func (p *program) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		syscall.Kill(-p.id.PID, sig)
	}
}

func (p *program) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.signal(syscall.SIGKILL)
}

// stop ends the program: by a message where there is one, then by SIGTERM, then by
// SIGKILL, and at once where ctx has ended. Nothing of it is left where the error is nil.
// It may be called twice, also at once.
func (p *program) stop(ctx context.Context, shutdown []byte) error {
	if len(shutdown) > 0 && p.write(shutdown, p.h.grace) == nil && p.endsWithin(ctx, p.h.grace) {
		return p.endErr
	}
	for late := time.Now().Add(p.h.grace); !hasBegun(p.dir) && time.Now().Before(late) && ctx.Err() == nil; {
		if p.endsWithin(ctx, time.Millisecond) {
			break
		}
	}
	p.signal(syscall.SIGCONT) // a stopped program would not handle the other
	p.signal(syscall.SIGTERM)
	if p.endsWithin(ctx, p.h.grace) {
		return p.endErr
	}
	p.kill()
	if !p.endsWithin(context.WithoutCancel(ctx), 2*family.KillWait) {
		return fmt.Errorf("process %d was killed and does not end; its folder %s stays", p.id.PID, p.dir)
	}
	return p.endErr
}

func hasBegun(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, begunName))
	return err == nil
}

func (p *program) endsWithin(ctx context.Context, d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-p.ended:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// write writes to the input of a persistent program.
func (p *program) write(b []byte, within time.Duration) error {
	p.feed.Lock()
	defer p.feed.Unlock()
	late := time.Now().Add(within)
	if err := p.openInput(late); err != nil {
		return err
	}
	if err := p.input.SetWriteDeadline(late); err != nil {
		return err
	}
	if _, err := p.input.Write(b); err != nil {
		return fmt.Errorf("write to the program's input: %w", err)
	}
	return nil
}

// openInput opens the input of a persistent program, once all before is in it. It needs
// p.feed.
func (p *program) openInput(late time.Time) error {
	if _, err := os.Lstat(filepath.Join(p.dir, fifo.In)); err != nil {
		return errors.New("the program's input is a file")
	}
	for ; !p.fed(); time.Sleep(time.Millisecond) { // it goes as soon as it is fed
		if time.Now().After(late) || done(p.ended) {
			return errors.New("the program has not read its first input")
		}
	}
	if p.input != nil {
		return nil
	}
	in, err := fifo.OpenInput(p.dir)
	if err != nil {
		return fmt.Errorf("open the program's input: %w", err)
	}
	p.input = in
	return nil
}

// fed reports whether the input of a persistent program is in its pipe.
func (p *program) fed() bool {
	_, err := os.Lstat(filepath.Join(p.dir, inputName))
	return errors.Is(err, fs.ErrNotExist)
}

// next begins another turn of a persistent program, for another run. With an error the
// program has not got it.
func (p *program) next(run string, input []byte) error {
	p.feed.Lock()
	defer p.feed.Unlock()
	late := time.Now().Add(p.h.grace)
	if err := p.openInput(late); err != nil {
		return err
	}
	if done(p.ended) {
		return errors.New("the program has ended")
	}
	if err := os.WriteFile(filepath.Join(p.dir, turnName), input, 0o600); err != nil {
		return fmt.Errorf("begin another turn: %w", err)
	}
	if err := os.Truncate(filepath.Join(p.dir, orderName), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("begin another turn: %w", err)
	}
	t := turn{Run: run, Stdout: p.at.stdout.pos, Stderr: p.at.stderr.pos, Posted: p.at.posted.pos}
	if err := p.note(t); err != nil {
		return err
	}
	p.at.begin(t)
	p.posts.set(false)
	p.given = len(input)
	return p.feedTurn(late)
}

// feeder takes the input of a turn to where the first one was, and feeds it. It goes on
// without the gateway. An input that it has not taken yet can be taken from it. It opens the
// pipe for reading, too, so that it does not wait for a program that is gone.
const feeder = `command -p mv "$1/turn" "$1/stdin" && command -p cat "$1/stdin" 1<>"$1/in" && command -p rm "$1/stdin"`

// feedTurn feeds the input of a turn. A program that ends meanwhile may have got it.
func (p *program) feedTurn(late time.Time) error {
	ctx, cancel := context.WithDeadline(context.Background(), late)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", feeder, "sh", p.dir)
	cmd.Env = family.NewEnvironment(p.h.environ, nil, "", p.kin.Token).List()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	closeOnExec()
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("the program does not read its input")
	case os.Remove(filepath.Join(p.dir, turnName)) == nil, !p.endsWithin(context.Background(), p.h.grace):
		return fmt.Errorf("give the program its input: %w", err)
	}
	return nil
}

// deaf reports whether the program has ended and read nothing of its last turn.
func (p *program) deaf() bool {
	p.feed.Lock()
	defer p.feed.Unlock()
	if p.input == nil || p.given == 0 || !done(p.ended) {
		return false
	}
	n, err := fifo.Unread(p.input)
	return err == nil && n == p.given
}

func (p *program) note(t turn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec := p.rec
	rec.Turn = t
	if err := records.Write(p.dir, rec); err != nil {
		return err
	}
	p.rec = rec
	return nil
}

// over is closed when nothing of the program runs any more.
func (p *program) over() <-chan struct{} { return p.ended }

func (p *program) pass() pass {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.Pass
}

// leave lets go of the program, which goes on.
func (p *program) leave() {
	if p.watch != nil {
		p.watch.Close()
	}
	<-p.tended
	p.feed.Lock()
	defer p.feed.Unlock()
	if p.input != nil {
		p.input.Close()
		p.input = nil
	}
}

// remove removes what is left of a program that has ended.
func (p *program) remove() error {
	select {
	case <-p.ended:
	default:
		return fmt.Errorf("the program in %s still runs", p.dir)
	}
	p.leave()
	if p.endErr != nil {
		return p.endErr
	}
	if err := folder.Remove(p.dir, recordName); err != nil {
		return fmt.Errorf("remove the folder of the run: %w", err)
	}
	return nil
}
