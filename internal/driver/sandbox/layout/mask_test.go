//go:build unix

package layout

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMasksCoverWhatIsSeenThroughAPart(t *testing.T) {
	h := machine(t, "/srv/homes -> /home", "/srv/data/secret/k", "/srv/data/sec -> secret", "/home/me/proj/.env", "/home/other/proj/f")
	for name, tt := range map[string]struct {
		change func(w *Wanted)
		shown  map[string]string
	}{
		"a home of one's own": {func(w *Wanted) { w.AllowRead = []string{"/home/me"} }, map[string]string{
			"/home/me/notes": "/home/me/notes", "/home/me/.ssh": "masked", "/home/me/.netrc": "masked", "/home/me/.config/gh": "masked", "/home/me/.local/state/tine": "masked", "/home/me/.local/state/tine/sandbox": "masked"}},
		"all homes": {func(w *Wanted) { w.AllowRead = []string{"/home"} }, map[string]string{
			"/home/me/notes": "/home/me/notes", "/home/me/.ssh/id": "masked", "/home/other": "masked", "/home/user": "dir"}},
		"all homes by a link": {func(w *Wanted) { w.AllowRead = []string{"/srv/homes"} }, map[string]string{
			"/srv/homes": "-> /home", "/home/me/notes": "/home/me/notes", "/home/me/.ssh/id": "masked", "/home/other/x": "masked"}},
		"what was named in the home of another": {func(w *Wanted) { w.AllowRead = []string{"/home/other/proj"} }, map[string]string{
			"/home/other/proj/f": "/home/other/proj/f", "/home/other/x": ""}},
		"and is in one that is masked": {func(w *Wanted) { w.AllowRead = []string{"/home", "/home/other/proj"} }, map[string]string{
			"/home/other/proj/f": "/home/other/proj/f", "/home/other/x": "", "/home/me/notes": "/home/me/notes", "/home/me/.ssh": "masked"}},
		"packages in the state folder": {func(w *Wanted) {
			w.AllowRead, w.Reads = []string{"/home/me"}, []string{stateDir + "/sandbox/packages/p-1"}
			w.Command = stateDir + "/sandbox/packages/p-1/bin/srv"
		}, map[string]string{stateDir + "/sandbox/packages/p-1/bin/srv": stateDir + "/sandbox/packages/p-1/bin/srv", stateDir + "/sandbox/packages": "dir", "/home/me/notes": "/home/me/notes"}},
		"what is denied": {func(w *Wanted) { w.AllowRead, w.DenyRead = []string{"/srv/data"}, []string{"/srv/data/secret"} }, map[string]string{
			"/srv/data/a": "/srv/data/a", "/srv/data/secret/k": "masked"}},
		"what is denied by a link": {func(w *Wanted) { w.AllowRead, w.DenyRead = []string{"/srv/data"}, []string{"/srv/data/sec/k"} }, map[string]string{
			"/srv/data/a": "/srv/data/a", "/srv/data/secret/k": "masked"}},
		"what is denied and may be written": {func(w *Wanted) { w.AllowWrite, w.DenyRead = []string{"/srv/data"}, []string{"/srv/data/secret"} }, map[string]string{
			"/srv/data/a": "/srv/data/a", "/srv/data/secret/k": "masked"}},
		"what is denied of the program's folder": {func(w *Wanted) {
			w.Command, w.Args, w.DenyRead = "/usr/bin/node", []string{"/home/me/proj/x.js"}, []string{"/home/me/proj/.env"}
		}, map[string]string{"/home/me/proj/x.js": "/home/me/proj/x.js", "/home/me/proj/.env": "masked"}},
		"the system's own": {func(w *Wanted) { w.AllowRead = []string{"/var"} }, map[string]string{
			"/var/log/messages": "masked", "/var/lib/docker": "masked", "/var/lib/dpkg/status": "/var/lib/dpkg/status"}},
		"the system's own by name": {func(w *Wanted) { w.AllowRead = []string{"/var/log"} }, map[string]string{"/var/log/messages": "/var/log/messages"}},
		"the host":                 {func(w *Wanted) { w.Mode, w.AllowRead = Host, []string{"/var/log/messages"} }, map[string]string{"/var/log/messages": "/var/log/messages", "/var/cache": "/var/cache", "/data/homes/b/x": "masked"}},
	} {
		t.Run(name, func(t *testing.T) {
			h.add(t, "/home/me/proj/x.js")
			w := wanted(h, "/usr/bin/tool")
			tt.change(&w)
			plan(t, w).want(t, h, tt.shown)
		})
	}
}

// What the gateway is configured with is seen by no sandbox, whatever is shown of its
// folder.
func TestTheGatewaysConfigIsMasked(t *testing.T) {
	more := []string{
		"/home/me/proj/tine.yaml", "/home/me/proj/x.js", "/home/me/proj/vars.env", "/home/me/tine.yaml", "/srv/conf/tine.yaml", "/srv/conf/s.py", "/srv/conf/link.yaml -> real/t.yaml", "/srv/conf/real/t.yaml",
	}
	for name, tt := range map[string]struct {
		change func(w *Wanted)
		shown  map[string]string
	}{
		"the program's folder": {func(w *Wanted) {
			w.Command, w.Args = "/usr/bin/node", []string{"/home/me/proj/x.js"}
			w.Private = []string{"/home/me/proj/tine.yaml", "/home/me/proj/vars.env"}
		}, map[string]string{"/home/me/proj/x.js": "/home/me/proj/x.js", "/home/me/proj/tine.yaml": "masked", "/home/me/proj/vars.env": "masked"}},
		"where it runs": {func(w *Wanted) { w.Cwd, w.Private = "/srv/conf", []string{"/srv/conf/tine.yaml"} }, map[string]string{
			"/srv/conf/s.py": "/srv/conf/s.py", "/srv/conf/tine.yaml": "masked"}},
		"a home": {func(w *Wanted) { w.AllowRead, w.Private = []string{"/home/me"}, []string{"/home/me/tine.yaml"} }, map[string]string{
			"/home/me/tine.yaml": "masked", "/home/me/notes": "/home/me/notes"}},
		"the host": {func(w *Wanted) { w.Mode, w.Private = Host, []string{"/srv/conf/tine.yaml"} }, map[string]string{
			"/srv/conf/tine.yaml": "masked", "/srv/conf/s.py": "/srv/conf/s.py"}},
		"another root": {func(w *Wanted) {
			w.Mode, w.Dir, w.Command, w.Private = Dir, "/srv", "/conf/s.py", []string{"/srv/conf/tine.yaml"}
		}, map[string]string{"/conf/tine.yaml": "masked", "/conf/s.py": "/srv/conf/s.py"}},
		"a link": {func(w *Wanted) { w.AllowRead, w.Private = []string{"/srv/conf"}, []string{"/srv/conf/link.yaml"} }, map[string]string{
			"/srv/conf/link.yaml": "masked", "/srv/conf/real/t.yaml": "masked", "/srv/conf/s.py": "/srv/conf/s.py"}},
		"one that is not there yet": {func(w *Wanted) { w.AllowRead, w.Private = []string{"/srv/conf"}, []string{"/srv/conf/later.env"} }, map[string]string{
			"/srv/conf/s.py": "/srv/conf/s.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := machine(t, more...)
			w := wanted(h, "/usr/bin/tool")
			tt.change(&w)
			l := plan(t, w)
			l.want(t, h, tt.shown)
			// As an editor does, which may put a file in the place of a link.
			for _, at := range w.Private {
				if err := os.RemoveAll(h.at(at)); err != nil {
					t.Fatal(err)
				}
				h.add(t, at)
				if got := l.show(h, at); w.Mode != Dir && got != "masked" && got != "" {
					t.Errorf("when it was replaced, %s is %q", at, got)
				}
				for _, part := range l.Parts {
					if part.Source != "" && within(part.Source, at) {
						t.Errorf("%s shows %s, so that a new file in its place would be seen", part.Path, at)
					}
				}
			}
		})
	}
	h := machine(t, more...)
	for _, dir := range []string{"/srv/conf", "/srv"} {
		w := wanted(h, "/usr/bin/tool")
		w.AllowWrite, w.Private = []string{dir}, []string{"/srv/conf/tine.yaml"}
		if _, err := Plan(w); err == nil || !strings.Contains(err.Error(), "it is the gateway's config") {
			t.Errorf("%s may be written to: %v", dir, err)
		}
	}
}

func TestWhatIsNotThereYetCannotAppear(t *testing.T) {
	h := machine(t, "/srv/data/deep/x/f", "/srv/data/link -> /srv/data/deep/come")
	w := wanted(h, "/usr/bin/tool")
	w.AllowRead, w.DenyRead = []string{"/srv/data"}, []string{"/srv/data/deep/later/on", "/srv/data/link"}
	l := plan(t, w)
	h.add(t, "/srv/data/deep/later/on")
	h.add(t, "/srv/data/deep/come")
	l.want(t, h, map[string]string{"/srv/data/a": "/srv/data/a", "/srv/data/deep/x/f": "/srv/data/deep/x/f", "/srv/data/deep/later/on": "", "/srv/data/deep/come": "", "/srv/data/link": "-> /srv/data/deep/come"})
}

func TestMasksCoverOtherMountsOfTheSameFiles(t *testing.T) {
	// A hard link stands for a file that is seen through another mount.
	h := machine(t, "/srv/again/me/", "/srv/again/covered/.netrc=another", "/srv/part/")
	for _, at := range []string{"/srv/again/me/.netrc", "/srv/part/n"} {
		if err := os.Link(h.at("/home/me/.netrc"), h.at(at)); err != nil {
			t.Fatal(err)
		}
	}
	h.add(t, "/proc/self/mountinfo="+strings.Join([]string{
		"1 0 8:1 / / rw - ext4 /dev/sda rw",
		"2 1 8:2 / /home rw shared:1 - ext4 /dev/sdb rw",
		"3 1 8:2 / /srv/again rw - ext4 /dev/sdb rw",
		"4 1 8:2 /me /srv/again/covered rw - ext4 /dev/sdb rw",
		`5 1 8:2 /me/.netrc /srv/part/n rw - ext4 /dev/sdb rw`,
		"6 1 0:5 / /srv/chroot\\040x/proc rw - proc proc rw",
		"nonsense",
	}, "\n")+"\n")
	h.add(t, "/srv/chroot x/proc/1/environ")
	w := wanted(h, "/usr/bin/tool")
	w.AllowRead = []string{"/srv"}
	plan(t, w).want(t, h, map[string]string{
		"/srv/again/me/.netrc": "masked", "/srv/part/n": "masked", "/srv/again/covered/.netrc": "/srv/again/covered/.netrc",
		"/srv/chroot x/proc/1/environ": "masked", "/srv/data/a": "/srv/data/a",
	})
}

func TestADirectoryThatNobodyMaySearchIsMaskedWhole(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("root may search everything")
		return
	}
	h := machine(t)
	if err := os.Chmod(h.at("/srv/data"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(h.at("/srv/data"), 0o755) })
	w := wanted(h, "/usr/bin/tool")
	w.AllowRead, w.DenyRead = []string{"/srv"}, []string{"/srv/data/a"}
	plan(t, w).want(t, h, map[string]string{"/srv/data": "masked"})
}

func TestHomesAreThoseOfPeople(t *testing.T) {
	h := machine(t, "/home/link -> other")
	if got, want := strings.Join(h.homes("/home/me"), " "), "/home/me /root /home/other /data/homes/b"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := h.homes("")[0]; got != "/nonexistent" {
		t.Errorf("without a home of one's own the first is %s", got)
	}
}

// A home that may be read shows nothing of what a list of such places has: what is
// there is masked, and what comes later is not seen.
func TestAHomeWithoutItsKeys(t *testing.T) {
	secret := []string{
		".ssh/id_ed25519", "backup.key", "aws.pem", "work.ovpn", ".password-store/a.gpg", "all.kdbx", ".config/Bitwarden CLI/data.json", ".local/share/keyrings/login.keyring", ".netrc", ".env", ".env.local",
		".aws/credentials", ".config/rclone/rclone.conf", ".rclone.conf", ".kube/config", ".docker/config.json", ".fly/config.yml", ".azure/x", ".config/gcloud/x", ".config/hcloud/cli.toml",
		".npmrc", ".pypirc", ".condarc", ".continuum/x", ".cargo/credentials.toml", ".cache/huggingface/token", ".kaggle/kaggle.json", ".config/pip/pip.conf", ".gem/credentials",
		".git-credentials", ".config/gh/hosts.yml", ".pgpass", ".my.cnf", ".config/tine/tine.yaml",
		".mozilla/firefox/x", ".config/google-chrome-beta/Default", ".config/chromium/x", ".config/microsoft-edge/x", ".config/BraveSoftware/x", "snap/firefox/x", ".thunderbird/x", ".msmtprc",
		".config/Slack/x", ".config/Signal/x", ".bitcoin/wallet.dat", ".claude/.credentials.json", ".codex/auth.json", ".mcp-auth/x",
		".bash_history", ".zsh_history", ".python_history", ".node_repl_history", ".duckdb_history", ".psql_history", ".some_new_history", ".viminfo", ".lesshst", ".local/share/fish/fish_history", ".ipython/profile_default/history.sqlite",
		"proj/.env", "code/site/.env.production",
		".gemini/.env", ".config/fabric/.env", ".config/other/.env",
		".config/zsh/.zsh_history", ".cache/zsh/history", ".local/share/zsh/history", ".config/fish/fish_history", ".local/share/fish/x", ".cache/cliphist/db", ".config/Code/User/History/x", ".emacs.d/savehist",
		".cursor/chats/x", ".codeium/config.json", ".codex/config.toml", ".claude/settings.json", ".config/Code/User/mcp.json", ".config/Code/User/globalStorage/state.vscdb", ".qwen/oauth_creds.json", ".local/share/amazon-q/data.sqlite3", ".local/share/amp/secrets.json", ".local/share/crush/crush.json", ".config/aichat/config.yaml", ".config/mods/mods.yml", ".config/shell_gpt/.sgptrc",
		".google_authenticator", ".config/Authy Desktop/x", ".config/Enpass/x", "Documents/Enpass/Vaults/primary/vault.enpassdb", "snap/nordpass/x", ".config/Proton Pass/x", "snap/bitwarden/x", "old.psafe3", "Documents/all.kdbx", "Documents/keep/all.psafe3",
		"proj/server.pem", "code/site/id_ed25519", "id_rsa", "backup/my-private.asc", ".config/syncthing/key.pem", ".tsh/keys/x", ".local/share/networkmanagement/certificates/x.pem",
		"miniconda3/.condarc", "anaconda3/.condarc", ".config/binstar/x.token", ".config/anaconda-client/x",
		".config/neonctl/credentials.json", ".config/turso/settings.json", ".influxdbv2/configs", ".slack/credentials.json", ".consul-token", ".nomad-token", ".vault_pass", ".borg-passphrase", ".config/kopia/repository.config", ".config/pnpm/rc", ".lein/credentials.clj.gpg", ".Renviron", ".curlrc", ".wgetrc", ".cvspass",
		"proj/.npmrc", "proj/.netrc", "code/site/.mcp.json", "code/site/.envrc", ".mcp.json",
		".edgerc", ".ngc/config", ".runpod/config.toml", ".expo/state.json", ".acme.sh/account.conf", ".erlang.cookie", ".hgrc", ".config/nix/nix.conf", ".ansible/vault_pass", ".ansible/galaxy_token", ".grok/auth.json", ".amazonq/x", ".config/Cody-nodejs/x", ".local/share/zed/conversations/x", ".vscode-server/data/User/settings.json",
		".local/share/nvim/shada/main.shada", ".tmux/resurrect/last", ".local/share/recently-used.xbel", ".anydesk/user.conf", ".config/rustdesk/RustDesk.toml", ".local/share/DBeaverData/x", ".local/state/tine/tine.db", ".doppler/.doppler.yaml", ".duckdb/stored_secrets/x", ".config/JetBrains/x/c.kdbx", ".conan2/credentials.json",
		"proj/.vscode/mcp.json", "code/site/.cursor/mcp.json", "proj/.claude/settings.local.json", "proj/.aws/credentials", "proj/.docker/config.json", "proj/.pgpass", "proj/.dev.vars", "code/site/.streamlit/secrets.toml", "proj/prod.env", "proj/.yarnrc.yml", "proj/AuthKey_1.p8", "code/site/terraform.tfvars", "proj/terraform.tfstate",
		"home/AuthKey.p8",
		".docker/contexts/x", ".docker/desktop/docker.sock", ".terraform.d/credentials.tfrc.json", ".config/shodan/api_key", ".microsoft/usersecrets/x", "proj/local.settings.json", "proj/mcp.json", "home/bitwarden_export_1.json", "home/wireguard/home.conf", "proj/ca.key",
	}
	// What projects add later is theirs.
	projects := []string{"proj/", "code/", "Documents/", "backup/", ".config/other/", "home/"}
	open := []string{"notes", "proj/x", "proj/.env.example", ".claude/CLAUDE.md", ".config/zsh/aliases.zsh", ".config/Code/User/keybindings.json", ".emacs.d/init.el", "proj/key.pub", "Documents/letter.txt", ".cache/huggingface/hub/model", ".fly/bin/flyctl", ".conda/envs/e/bin/x", ".config/tine/server.py", "Mail/inbox", "code/site/deep/.env", "proj/.vscode/settings.json", "proj/.claude/settings.json", "proj/.docker/Dockerfile", "proj/main.tf", ".ansible/roles/x", ".vscode-server/bin/x", ".local/share/nvim/site/x",
		".docker/cli-plugins/docker-compose", ".terraform.d/plugins/x", "cacert.pem", "miniconda3/ssl/cacert.pem", "proj/cert.pem", "proj/public.key"}
	home := func(names []string) (lines []string) {
		for _, name := range names {
			lines = append(lines, "/home/me/"+name)
		}
		return lines
	}
	w := func(h host) Wanted {
		w := wanted(h, "/usr/bin/tool")
		w.AllowRead = []string{"/home/me"}
		return w
	}
	hidden := func(t *testing.T, l *Layout, h host, also string) {
		t.Helper()
		for _, at := range home(secret) {
			if got := l.show(h, at); got != "masked" && got != also {
				t.Errorf("%s is %q", at, got)
			}
		}
	}
	t.Run("that are there", func(t *testing.T) {
		h := machine(t, append(home(secret), home(open)...)...)
		l := plan(t, w(h))
		hidden(t, l, h, "masked")
		for _, at := range home(open) {
			if got := l.show(h, at); got != at {
				t.Errorf("%s is %q", at, got)
			}
		}
	})
	t.Run("that come later", func(t *testing.T) {
		h := machine(t, home(open)...)
		l := plan(t, w(h))
		for _, at := range home(secret) {
			if !slices.ContainsFunc(projects, func(dir string) bool { return strings.HasPrefix(at, "/home/me/"+dir) }) {
				h.add(t, at)
			}
		}
		hidden(t, l, h, "")
	})
}

// A folder of logins with programs in it is shown with these alone, whatever comes later
// and wherever a link leads to it.
func TestAFolderOfLoginsWithPrograms(t *testing.T) {
	for name, at := range map[string]string{"itself": "/home/me/.docker", "by a link": "/home/me/dotfiles/docker"} {
		t.Run(name, func(t *testing.T) {
			h := machine(t, at+"/cli-plugins/docker-compose")
			if at != "/home/me/.docker" {
				h.add(t, "/home/me/.docker -> dotfiles/docker")
			}
			w := wanted(h, "/usr/bin/tool")
			w.AllowRead = []string{"/home/me"}
			l := plan(t, w)
			h.add(t, at+"/contexts/x")
			h.add(t, at+"/config.json")
			plugin := at + "/cli-plugins/docker-compose"
			l.want(t, h, map[string]string{plugin: plugin, at + "/contexts/x": "", at + "/config.json": ""})
			if !l.Changed() {
				t.Error("a new entry of the folder is not noticed")
			}
			plan(t, w).want(t, h, map[string]string{plugin: plugin, at + "/contexts": "masked", at + "/config.json": "masked"})
		})
	}
}

// The variables of a project are a program's own where it belongs to that, and can be
// asked for by name.
func TestVariablesOfAProject(t *testing.T) {
	h := machine(t, "/home/me/proj/.env", "/home/me/proj/x.js", "/home/me/other/.env")
	w := wanted(h, "/usr/bin/node", "/home/me/proj/x.js")
	plan(t, w).want(t, h, map[string]string{"/home/me/proj/.env": "/home/me/proj/.env"})
	w.AllowRead = []string{"/home/me"}
	plan(t, w).want(t, h, map[string]string{"/home/me/proj/.env": "/home/me/proj/.env", "/home/me/other/.env": "masked"})
	w.AllowRead = []string{"/home/me", "/home/me/other/.env"}
	plan(t, w).want(t, h, map[string]string{"/home/me/other/.env": "/home/me/other/.env"})
	w.AllowRead = []string{"/home/me/other"}
	plan(t, w).want(t, h, map[string]string{"/home/me/other/.env": "/home/me/other/.env"})
}

// What shells and git start with is hidden where the folder that it is in is shown, and
// shown where it is named.
func TestFilesThatShellsStartWith(t *testing.T) {
	h := machine(t, "/home/me/.bashrc", "/home/me/.gitconfig", "/home/me/.config/fish/config.fish", "/home/me/.config/fish/functions/f.fish")
	w := wanted(h, "/usr/bin/tool")
	w.AllowRead = []string{"/home/me"}
	plan(t, w).want(t, h, map[string]string{"/home/me/.bashrc": "masked", "/home/me/.gitconfig": "masked", "/home/me/.config/fish/config.fish": "masked", "/home/me/.config/fish/functions/f.fish": "/home/me/.config/fish/functions/f.fish"})
	w.AllowRead = []string{"/home/me/.config/fish"}
	plan(t, w).want(t, h, map[string]string{"/home/me/.config/fish/config.fish": "masked"})
	w.AllowRead = []string{"/home/me", "/home/me/.gitconfig", "/home/other/.profile"}
	h.add(t, "/home/other/.profile")
	plan(t, w).want(t, h, map[string]string{"/home/me/.bashrc": "masked", "/home/me/.gitconfig": "/home/me/.gitconfig", "/home/other/.profile": "/home/other/.profile"})
}

// A place of keys that is in a project is shown where it is named, as a folder or as
// what is in it.
func TestKeysOfAProjectThatAreNamed(t *testing.T) {
	h := machine(t, "/home/me/proj/.aws/config", "/home/me/proj/.vscode/mcp.json", "/home/me/proj/terraform.tfvars", "/home/me/proj/x")
	for _, named := range []string{"/home/me/proj/.aws", "/home/me/proj/.aws/config", "/home/me/proj/.vscode/mcp.json", "/home/me/proj/terraform.tfvars"} {
		w := wanted(h, "/usr/bin/tool")
		w.AllowRead = []string{"/home/me", named}
		l := plan(t, w)
		for _, at := range []string{"/home/me/proj/.aws/config", "/home/me/proj/.vscode/mcp.json", "/home/me/proj/terraform.tfvars"} {
			want := "masked"
			if within(named, at) {
				want = at
			}
			if got := l.show(h, at); got != want {
				t.Errorf("where %s is named, %s is %q, want %q", named, at, got, want)
			}
		}
	}
	// A folder that may be written to is shown as it is where the home is not.
	w := wanted(h, "/usr/bin/tool")
	w.AllowWrite = []string{"/home/me/proj"}
	plan(t, w).want(t, h, map[string]string{"/home/me/proj/terraform.tfvars": "/home/me/proj/terraform.tfvars"})
	w.AllowRead = []string{"/home/me"}
	plan(t, w).want(t, h, map[string]string{"/home/me/proj/terraform.tfvars": "masked", "/home/me/proj/x": "/home/me/proj/x"})
}

// With root: host the same is hidden as with a home that may be read.
func TestVariablesOfAProjectWithTheHost(t *testing.T) {
	h := machine(t, "/data/homes/me/proj/.env", "/data/homes/me/proj/x", "/data/homes/me/own/.env", "/data/homes/me/own/x.js")
	w := wanted(h, "/usr/bin/node", "/data/homes/me/own/x.js")
	w.Mode, w.Homes = Host, h.homes("/data/homes/me")
	plan(t, w).want(t, h, map[string]string{
		"/data/homes/me/proj/.env": "masked", "/data/homes/me/proj/x": "/data/homes/me/proj/x", "/data/homes/me/own/.env": "/data/homes/me/own/.env",
	})
	w.Mode, w.Dir, w.Command, w.Args = Dir, "/data", "/homes/me/proj/x", nil
	plan(t, w).want(t, h, map[string]string{"/homes/me/proj/.env": "masked", "/homes/me/proj/x": "/data/homes/me/proj/x"})
	// Where the home is below a folder of the system, that is not the server's own.
	h = machine(t, "/opt/me/proj/.env")
	w = wanted(h, "/usr/bin/tool")
	w.AllowRead, w.Homes = []string{"/opt/me"}, h.homes("/opt/me")
	plan(t, w).want(t, h, map[string]string{"/opt/me/proj/.env": "masked"})
}

// A home with very many projects has all of their keys hidden, by a bounded number of
// parts.
func TestKeysOfManyProjects(t *testing.T) {
	h := machine(t)
	for i := range 220 {
		for j := range 12 {
			h.add(t, fmt.Sprintf("/home/me/code/p%d/f%d", i, j))
		}
		h.add(t, fmt.Sprintf("/home/me/code/p%d/.env", i))
	}
	for i := range maxEntries + 1 {
		h.add(t, fmt.Sprintf("/home/me/big/f%d", i))
	}
	h.add(t, "/home/me/big/.env")
	w := wanted(h, "/usr/bin/tool")
	w.AllowRead = []string{"/home/me"}
	l, err := Plan(w)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 220 {
		l.want(t, h, map[string]string{fmt.Sprintf("/home/me/code/p%d/.env", i): "masked", fmt.Sprintf("/home/me/code/p%d/f1", i): fmt.Sprintf("/home/me/code/p%d/f1", i)})
	}
	l.want(t, h, map[string]string{"/home/me/big/.env": "masked", "/home/me/big/f1": "/home/me/big/f1"})
	if len(l.Parts) > maxProjectParts+500 {
		t.Errorf("the root has %d parts", len(l.Parts))
	}
}
