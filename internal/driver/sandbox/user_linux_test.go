//go:build amd64 || arm64

package sandbox

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/torture"
)

// userVar says that the test runs as an ordinary user because another started it.
const userVar = "TINE_TEST_SANDBOX_USER"

// ordinary is the id of a user that need not have a name.
const ordinary = 54321

// TestOrdinaryUser runs the tests of this package again as a user other than root. A run
// as an ordinary user has done that already.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv(userVar) != "" {
		return
	}
	dir, err := os.MkdirTemp("", "tine-user")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{binaryName: path, "sandbox.test": self, "server": builder.Program(t), netServer.name: netServer.at(t), attacker.name: attacker.at(t)} {
		copyFile(t, filepath.Join(dir, name), from)
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, home} {
		if err := os.Chown(path, ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "sandbox.test"), "-test.run", "^("+strings.Join(userTests, "|")+")$", "-test.timeout", "10m", "-test.v="+verbose())
	cmd.Dir = home
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, "CI=" + os.Getenv("CI"),
		userVar + "=1", binaryVar + "=" + filepath.Join(dir, binaryName), "TINE_DRIVERTEST_PROGRAM=" + filepath.Join(dir, "server"), netServer.variable + "=" + filepath.Join(dir, netServer.name), attacker.variable + "=" + filepath.Join(dir, attacker.name),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	out, err := cmd.CombinedOutput()
	if err != nil || testing.Verbose() {
		t.Logf("as an ordinary user:\n%s", out)
	}
	if err != nil {
		t.Error(err)
	}
}

// userTests are the tests that matter for an ordinary user.
var userTests = torture.Or(
	[]string{"TestIsolation(Files|Limits|Memory.*|Network|Privileges|Namespaces|Masks|State)", "TestShown(FolderReplaced|WithNewSecrets)", "TestForkOnSlots", "TestWebServerForksWithItsMemory", "TestProbe.*", "TestWatch.*"},
	[]string{"TestSuite", "TestIsolation.*", "TestShown.*", "TestFork.*", "TestWeb.*", "TestNetwork.*", "TestProbe.*", "TestWatch.*"},
)

func verbose() string {
	if testing.Verbose() {
		return "true"
	}
	return "false"
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
