package keyplaces

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A place is written so that it can be compared name by name, and stands once.
func TestPlacesAreWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for _, place := range slices.Concat(ofHome, ofStart, belowProjects, ofSystem) {
		switch {
		case place != path.Clean(place) || strings.HasPrefix(place, "../"):
			t.Errorf("%q is not clean", place)
		case strings.ContainsAny(path.Dir(place), "*?["):
			t.Errorf("%q has a pattern before its last name", place)
		case path.IsAbs(place) != slices.Contains(ofSystem, place):
			t.Errorf("%q is of the system or of a home, not both", place)
		case seen[place] && !slices.Contains(belowProjects, place):
			t.Errorf("%q stands twice", place)
		}
		seen[place] = true
		if _, err := path.Match(path.Base(place), "x"); err != nil {
			t.Errorf("%q: %v", place, err)
		}
	}
	for _, place := range notKeys {
		if _, err := path.Match(place, "x"); err != nil || path.Dir(place) != "." && !slices.Contains(ofHome, path.Join(path.Dir(place), "*")) {
			t.Errorf("%q is the exception of no pattern: %v", place, err)
		}
	}
	for _, list := range [][]string{inProjects, dirsInProjects, notSecret, notProjects} {
		for _, name := range list {
			if _, err := path.Match(name, "x"); err != nil || strings.Contains(name, "/") {
				t.Errorf("%q is not the pattern of a name: %v", name, err)
			}
		}
	}
}

func TestInHome(t *testing.T) {
	for rel, want := range map[string]string{
		".ssh": ".ssh", ".ssh/id_ed25519": ".ssh", ".ssh/": ".ssh", "./x/../.netrc": ".netrc", "server.pem": "*.pem", ".config/gh/hosts.yml": ".config/gh", ".config/google-chrome-beta/Default/Login Data": ".config/google-chrome*",
		".edgerc": ".edgerc", ".ngc/config": ".ngc", ".runpod/config.toml": ".runpod", ".expo/state.json": ".expo", ".acme.sh/account.conf": ".acme.sh", ".erlang.cookie": ".erlang.cookie", ".hgrc": ".hgrc", ".config/nix/nix.conf": ".config/nix", ".ansible/vault_pass": ".ansible/vault_pass",
		".grok/auth.json": ".grok", ".amazonq/x": ".amazonq", ".config/Cody-nodejs/x": ".config/[Cc]ody*", ".local/share/zed/db/0-stable/db.sqlite": ".local/share/zed/db", ".vscode-server/data/User/settings.json": ".vscode-server/data/User",
		".local/share/nvim/shada/main.shada": ".local/share/nvim/shada", ".tmux/resurrect/last": ".tmux/resurrect", ".local/share/recently-used.xbel": ".local/share/recently-used.xbel", ".anydesk/user.conf": ".anydesk", ".config/rustdesk/RustDesk.toml": ".config/rustdesk", ".local/share/DBeaverData/x": ".local/share/DBeaverData", ".local/state/tine/tine.db": ".local/state/tine",
		".shodan/api_key": ".shodan", ".config/shodan/api_key": ".config/shodan", ".config/planetscale/access-token": ".config/planetscale", ".confluent/config.json": ".confluent", ".python-gitlab.cfg": ".python-gitlab.cfg", ".e2b/config.json": ".e2b", ".lambda_cloud/lambda_keys": ".lambda_cloud", ".upstash.json": ".upstash.json", ".config/upstash/config.json": ".config/upstash", ".pdcp/credentials.yaml": ".pdcp",
		".config/subfinder/provider-config.yaml": ".config/subfinder", ".config/uncover/provider-config.yaml": ".config/uncover", ".config/notify/provider-config.yaml": ".config/notify", ".config/censys/censys.cfg": ".config/censys", ".megarc": ".megarc", ".megaCmd/session": ".megaCmd", ".lftprc": ".lftprc", ".local/share/lftp/bookmarks": ".local/share/lftp", ".k3d/kubeconfig-x.yaml": ".k3d", ".config/k3d/x": ".config/k3d",
		"openrc.sh": "openrc.sh", "lab-openrc.sh": "*-openrc.sh", "keystonerc_admin": "keystonerc_*", "wallet.dat": "wallet.dat", "rootkey.csv": "rootkey.csv", "accessKeys.csv": "*accessKeys.csv", "me_accessKeys.csv": "*accessKeys.csv", "bitwarden_export_20250101.json": "bitwarden_export_*", "me.1pux": "*.1pux", "lastpass_export.csv": "lastpass_*.csv", "wg0.conf": "wg[0-9]*.conf", "kubeconfig": "kubeconfig",
		".microsoft/usersecrets/x/secrets.json": ".microsoft/usersecrets", ".aspnet/https/x": ".aspnet", ".dotnet/corefx/cryptography/x509stores/my/x.pfx": ".dotnet/corefx/cryptography", ".IdentityService/msal.cache": ".IdentityService", ".local/share/.IdentityService/x": ".local/share/.IdentityService", ".fluidstack/api_key": ".fluidstack", ".nebius/credentials.json": ".nebius", ".prime/config.json": ".prime", ".sky/config.yaml": ".sky", ".config/daytona/config.json": ".config/daytona",
		".convex/config.json": ".convex", ".alchemy/credentials/x": ".alchemy", ".config/replicate/hosts": ".config/replicate", ".config/sanity/config.json": ".config/sanity", ".contentfulrc.json": ".contentfulrc.json", ".cf/config.json": ".cf", ".sf/x": ".sf", ".sfdx/x": ".sfdx", ".config/hcp/creds-cache.json": ".config/hcp",
		".docker/config.json": ".docker/config.json", ".docker/contexts/tls/x/key.pem": ".docker/*", ".docker/key.pem": ".docker/*", ".terraform.d/credentials.tfrc.json": ".terraform.d/credentials.tfrc.json", ".terraform.d/checkpoint_cache": ".terraform.d/*", "ca.key": "*.key", "ca-key.pem": "*.pem", "privkey.pem": "*.pem", "privkey1.pem": "*.pem", "cert1-key.pem": "*.pem", "cert.key": "*.key", "rootCA-key.pem": "*.pem",
		".docker": "", ".docker/cli-plugins": "", ".docker/cli-plugins/docker-buildx": "", ".docker/cli-plugins/config.json": "", ".terraform.d": "", ".terraform.d/plugins/x": "", ".terraform.d/plugin-cache": "", "ca.pem": "", "cacert.pem": "", "ca-bundle.pem": "", "tls-ca-bundle.pem": "", "cert.pem": "", "fullchain.pem": "", "fullchain1.pem": "", "public.key": "", "id_rsa.pub": "", "plugins": "",
		".": "", "": "", ".config": "", "notes": "", ".sshx": "", "proj/.ssh": "", ".local/share": "", ".ansible": "", ".config/nixpkgs": "", "key.pub": "",
	} {
		if got, ok := InHome(rel); got != want || ok != (want != "") {
			t.Errorf("%q lies in %q, want %q", rel, got, want)
		}
	}
}

func TestBelowHome(t *testing.T) {
	for rel, want := range map[string]string{".ansible": ".ansible/galaxy_token", ".config": ".config/gh", ".config/": ".config/gh", ".": ".ssh", ".vscode-server": ".vscode-server/data/User"} {
		if got := BelowHome(rel); !slices.Contains(got, want) {
			t.Errorf("in %q are %v, not %s", rel, got, want)
		}
	}
	for _, rel := range []string{"notes", ".conf", ".ssh", ".config/g"} {
		if got := BelowHome(rel); len(got) > 0 {
			t.Errorf("in %q are %v", rel, got)
		}
	}
	if got := BelowSystem("/etc/ssl"); !slices.Equal(got, []string{"/etc/ssl/private"}) {
		t.Errorf("in /etc/ssl are %v", got)
	}
	if got, ok := InSystem("/etc/shadow-"); !ok || got != "/etc/shadow*" {
		t.Errorf("/etc/shadow- lies in %q", got)
	}
}

func readDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }

func TestKeysOfProjects(t *testing.T) {
	keys := []string{
		"top.env", "a/.env", "a/.env.local", "a/b/prod.env", "a/.dev.vars", "a/terraform.tfvars", "a/b/x.auto.tfvars", "a/terraform.tfstate", "a/.pgpass", "a/.yarnrc.yml", "a/AuthKey_1.p8", "a/deploy_ed25519", "a/kubeconfig", "a/credentials.json", "a/client_secret_1.json", "a/secrets.yaml", "a/wp-config.php",
		"a/.secrets.yaml", "a/.secrets.toml", "a/.secrets.json", "a/token.json", "a/token.pickle", "a/storage_state.json", "a/gcp-key.json", "a/gcp-credentials.json", "a/google-credentials.json", "a/gha-creds-1.json", "a/app-firebase-adminsdk-x1-2.json", "a/kubeconfig.yaml", "a/b/kubeconfig.yml", "a/lab-kubeconfig.yaml", "a/.sentryclirc", "a/sentry.properties", "a/mcp.json", "a/mcp_config.json", "a/cline_mcp_settings.json", "a/claude_desktop_config.json",
		"a/local.settings.json", "a/vault_pass.txt", "a/vault_pass", "a/vault_password.txt", "a/.vault_pass", "a/rootkey.csv", "a/accessKeys.csv", "a/me_accessKeys.csv", "a/credentials.csv", "a/credentials.yml", "a/bitwarden_export_20250101.json", "a/me.1pux", "a/lastpass_export.csv", "a/wallet.dat", "a/openrc.sh", "a/lab-openrc.sh", "a/keystonerc_admin", "a/clouds.yaml", "a/wg0.conf", "a/wireguard/home.conf", "a/playwright/.auth/user.json", "a/keystore.properties", "a/secrets.properties", "a/.megarc", "a/.lftprc", "a/.upstash.json", "a/.python-gitlab.cfg",
		"a/ca.key", "a/ca-key.pem", "a/privkey.pem", "a/b/cert1-key.pem", "a/b/cert.key",
		"a/.vscode/mcp.json", "a/.cursor/mcp.json", "a/b/.cursor/mcp.json", "a/.claude/settings.local.json", "a/.mcp.json", "a/.docker/config.json", "a/b/.streamlit/secrets.toml", "a/.kiro/settings/mcp.json", "a/config/master.key", "a/.vercel/.env.production.local", "a/.idea/dataSources.local.xml",
	}
	dirs := []string{"a/.aws", "a/b/.kube", "docs/x.opvault"}
	open := []string{
		"a/.env.example", "a/example.env", "a/b/.env.sample", "a/main.tf", "a/deploy_ed25519.pub", "a/.vscode/settings.json", "a/.claude/settings.json", "a/.docker/Dockerfile", "a/config/routes.rb", "a/package.json", "a/environment", "a/.yarnrc", "a/secrets.go", "a/.vercel/project.json",
		"a/.secrets.baseline", "a/secrets.toml.example", "a/mcp.json.example", "a/tokens.json", "a/kubeconfig.go", "a/wallet.go", "a/wg.conf", "a/wireguard/README.md", "a/openrc", "a/local.settings.json.sample",
		"a/ca.pem", "a/cacert.pem", "a/b/cacert.pem", "a/ca-bundle.pem", "a/tls-ca-bundle.pem", "a/cert.pem", "a/fullchain.pem", "a/b/cert1.pem", "a/public.key", "a/public.pem", "a/jwt.pub.pem", "a/id_rsa.pub", "a/.docker/cli-plugins/x",
		"a/node_modules/p/.env", "a/b/c/.env", ".cache/.env",
	}
	top := t.TempDir()
	for _, name := range slices.Concat(keys, open, []string{"a/.aws/credentials", "a/b/.kube/config", "docs/x.opvault/y"}) {
		at := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for _, name := range append(keys, dirs...) {
		want = append(want, path.Join(filepath.ToSlash(top), name))
	}
	got := Search{ReadDir: readDir, Dirs: 1000}.Below(filepath.ToSlash(top))
	slices.Sort(got)
	got = slices.Compact(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %v\nwant  %v", got, want)
	}
	if got := (Search{ReadDir: readDir, Dirs: 1000, Most: 2}).Below(top); len(got) != 2 {
		t.Errorf("of two at most %v were found", got)
	}
}

// The search lists no more folders than it may, however many there are.
func TestTheSearchIsBounded(t *testing.T) {
	top := t.TempDir()
	for i := range 40 {
		if err := os.MkdirAll(filepath.Join(top, fmt.Sprintf("p%d/.vscode", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	listed := 0
	Search{ReadDir: func(dir string) ([]fs.DirEntry, error) { listed++; return os.ReadDir(dir) }, Dirs: 10}.Below(top)
	if listed != 10 {
		t.Errorf("%d folders were listed, want 10", listed)
	}
}
