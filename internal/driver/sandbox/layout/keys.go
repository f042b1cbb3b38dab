package layout

import "slices"

// ofHome are what in a home is nobody's business: keys, tokens, passwords, mail, and
// what was typed. A name with * in it is a pattern. What is not there yet is kept out
// too, but for patterns; nothing new appears in a home that is shown, since that is
// shown entry by entry.
var ofHome = slices.Concat(keys, passwords, clouds, registries, developers, accounts, browsers, talks, assistants, histories)

var keys = []string{
	".ssh", ".gnupg", ".pki", ".local/share/pki", ".cert", ".step", ".minisign", ".age", ".config/age", ".config/sops", ".caff", ".putty", ".config/putty", "*.ppk", "*.key", "*.pem", "*.p12", "*.pfx", "*.jks", "*.keystore",
	".wireguard", ".config/wireguard", ".openvpn", ".config/openvpn", "*.ovpn", ".tailscale", ".local/share/tailscale", ".cisco", ".globalprotect",
	".ecryptfs", ".fscrypt", ".Private", "Private", ".vaults", ".local/share/plasma-vault", ".VeraCrypt", ".TrueCrypt", ".zuluCrypt", ".krb5", ".k5keytab", ".rhosts", ".shosts", ".Xauthority", ".ICEauthority", ".vnc", ".config/tigervnc",
	".config/syncthing", ".local/state/syncthing", ".tsh", ".local/share/networkmanagement/certificates", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*private*.asc", "*secret*.asc",
}

var passwords = []string{
	".password-store", ".config/gopass", ".local/share/gopass", ".config/keepassxc", ".cache/keepassxc", ".keepass", ".config/KeePass", "*.kdb", "*.kdbx", ".config/Bitwarden*", ".config/rbw", ".local/share/rbw",
	".config/1Password", ".config/op", ".op", ".config/Enpass", ".lpass", ".config/lpass", ".local/share/lpass", ".config/keybase", ".local/share/keybase",
	".local/share/keyrings", ".gnome2/keyrings", ".local/share/kwalletd", ".kde/share/apps/kwallet", ".kde4/share/apps/kwallet", ".config/kwalletrc", ".local/share/python_keyring", ".config/python_keyring", ".authinfo", ".authinfo.gpg", ".netrc", ".netrc.gpg", "_netrc", ".env", ".env.*", ".envrc",
	".google_authenticator", ".config/Authy Desktop", ".config/authy", "snap/authy", ".config/sinew.in", ".config/enpass", ".local/share/Enpass", ".enpass", ".config/NordPass", ".config/nordpass", "snap/nordpass", ".config/Proton Pass", "snap/bitwarden", "snap/bw", "snap/keepassxc", "snap/1password",
	"*.psafe3", "*.agilekeychain", "*.opvault", "*.keychain", "*.keychain-db", ".config/OTPClient",
}

// clouds are of the tools with which machines, containers and storage are rented.
var clouds = []string{
	".aws", ".aws-sso", ".awsvault", ".saml2aws", ".okta", ".azure", ".config/gcloud", ".gsutil", ".boto", ".s3cfg", ".s3cmd", ".passwd-s3fs", ".mc", ".mcli", ".b2_account_info", ".config/b2", ".config/rclone", ".rclone.conf", ".config/restic", ".config/borg",
	".oci", ".aliyun", ".tccli", ".hcloud", ".config/hcloud", ".config/scw", ".config/doctl", ".config/linode-cli", ".ibmcloud", ".bluemix", ".civo.json", ".vultr-cli.yaml", ".config/exoscale", ".config/openstack", ".config/upctl.yaml",
	".fly/config.yml", ".config/netlify", ".netlify", ".local/share/com.vercel.cli", ".config/com.vercel.cli", ".wrangler", ".config/.wrangler", ".cloudflared", ".railway/config.json", ".supabase/access-token", ".config/heroku", ".local/share/heroku", ".ngrok2", ".config/ngrok", ".config/configstore", ".config/stripe", ".twilio-cli", ".modal.toml",
	".pulumi/credentials.json", ".terraform.d", ".terraformrc", ".vagrant.d", ".vault-token", ".config/vault", ".ansible_vault_pass", ".chef", ".databrickscfg", ".databricks/token-cache.json", ".snowflake", ".snowsql", ".config/snowflake", ".dbt/profiles.yml",
	".kube", ".docker", ".dockercfg", ".config/containers", ".local/share/containers", ".config/helm", ".helm", ".config/argocd", ".argocd", ".minikube", ".rancher", ".talos", ".singularity/remote.yaml", ".singularity/docker-config.json", ".apptainer/remote.yaml", ".apptainer/docker-config.json", ".config/libvirt",
	".config/neonctl", ".neon", ".config/turso", ".influxdbv2", ".slack", ".consul-token", ".nomad-token", ".vault_pass", ".vault_pass.txt", ".vault-pass", ".borg-passphrase", ".borg", ".config/kopia", ".cache/kopia", ".config/resticprofile",
}

// registries are of the tools that fetch and publish packages, models and data.
var registries = []string{
	".npmrc", ".yarnrc", ".yarnrc.yml", ".bunfig.toml", ".pypirc", ".pip", ".config/pip", ".config/pypoetry", ".config/uv", ".local/share/uv/credentials", ".condarc", ".conda/.condarc", ".conda/condarc", ".config/conda", ".anaconda", ".config/anaconda", ".continuum", ".mambarc", ".config/hatch",
	".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".local/share/gem/credentials", ".bundle/config", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".ivy2/.credentials", ".sbt/.credentials", ".sbt/credentials",
	".nuget/NuGet", ".config/NuGet", ".composer/auth.json", ".config/composer/auth.json", ".hex/hex.config", ".cabal/config", ".pub-cache/credentials.json", ".config/dart", ".pause",
	".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".kaggle", ".config/kaggle", ".config/wandb", ".comet.config", "clearml.conf", ".clearml.conf", ".lightning/credentials.json", ".streamlit/secrets.toml", ".jupyter/jupyter_server_config.json", ".jupyter/jupyter_notebook_config.json", ".local/share/jupyter/runtime",
	"miniconda3/.condarc", "anaconda3/.condarc", "miniforge3/.condarc", "mambaforge/.condarc", "micromamba/.condarc", ".binstar", ".config/binstar", ".local/share/binstar", ".config/anaconda-client", ".local/share/anaconda-client", ".config/pnpm", ".lein/credentials.clj", ".lein/credentials.clj.gpg", ".Renviron",
}

// developers are of the tools around source code and databases.
var developers = []string{
	".git-credentials", ".config/git/credentials", ".git-credential-cache", ".cache/git/credential", ".gitcookies", ".subversion/auth", ".config/gh", ".config/glab-cli", ".config/hub", ".config/tea", ".config/lab", ".gist", ".jira.d", ".config/.jira", ".config/jira", ".arcrc", ".travis", ".circleci", ".sentryclirc", ".config/github-copilot",
	".pgpass", ".pg_service.conf", ".my.cnf", ".mylogin.cnf", ".config/pgcli", ".myclirc", ".config/mycli", ".mongodb", ".mongorc.js", ".rediscli_auth", ".redisclirc", ".cassandra", ".dbeaver4", ".local/share/DBeaverData", ".config/tine/tine.yaml", ".config/tine/tine.yml",
	".curlrc", ".config/curlrc", ".wgetrc", ".config/wgetrc", ".cvspass", ".mcp.json",
}

// accounts are of mail, files and machines elsewhere.
var accounts = []string{
	".thunderbird", ".config/evolution", ".local/share/evolution", ".config/geary", ".local/share/geary", ".claws-mail", ".config/goa-1.0", ".config/msmtp", ".msmtprc", ".fetchmailrc", ".getmail", ".config/getmail", ".mbsyncrc", ".config/isyncrc", ".offlineimaprc", ".config/offlineimap",
	".mutt", ".muttrc", ".config/mutt", ".config/neomutt", ".neomuttrc", ".config/aerc", ".smbcredentials", ".davfs2", ".config/davfs2", ".config/remmina", ".local/share/remmina", ".remmina", ".config/freerdp", ".config/filezilla", ".filezilla", ".lftp", ".config/lftp", ".local/share/lftp",
}

var browsers = []string{
	".mozilla", ".config/mozilla", ".librewolf", ".waterfox", ".zen", ".floorp", ".moonchild productions", ".tor-browser*", ".local/share/torbrowser", ".config/google-chrome*", ".config/chromium*", ".config/BraveSoftware", ".config/microsoft-edge*", ".config/opera*", ".config/vivaldi*", ".config/yandex-browser*", ".config/thorium*",
	".config/qutebrowser", ".local/share/qutebrowser", ".config/falkon", ".local/share/epiphany", ".config/epiphany", ".var/app", "snap/firefox", "snap/chromium", "snap/thunderbird", "snap/brave", "snap/opera",
}

// talks are of programs that people talk to each other with, or pay.
var talks = []string{
	".config/Slack", ".config/discord", ".config/Signal", ".local/share/signal-cli", ".config/Element", ".local/share/TelegramDesktop", ".config/teams*", ".config/Microsoft", ".config/hexchat", ".irssi", ".weechat", ".config/weechat", ".local/share/weechat", ".purple", ".zoom", ".config/zoomus.conf",
	".bitcoin", ".litecoin", ".dogecoin", ".zcash", ".monero", ".electrum", ".ethereum", ".config/solana", ".foundry/keystores", ".config/Exodus", ".config/Ledger Live", ".near-credentials", ".sui", ".aptos",
}

// assistants are of programs that talk to models: their keys, and what was said.
var assistants = []string{
	".claude.json", ".claude.json.backup", ".claude/.credentials.json", ".claude/history.jsonl", ".claude/projects", ".config/Claude", ".codex/auth.json", ".codex/history.jsonl", ".codex/sessions", ".gemini/oauth_creds.json", ".gemini/google_accounts.json", ".gemini/tmp", ".copilot", ".cursor/mcp.json", ".config/Cursor",
	".aider*", ".continue/config.yaml", ".continue/config.json", ".continue/.env", ".continue/sessions", ".config/goose", ".local/share/goose", ".config/opencode", ".local/share/opencode", ".config/io.datasette.llm", ".config/openai", ".openai", ".config/anthropic", ".anthropic", ".ollama/id_ed25519", ".ollama/history", ".mcp-auth",
	".claude/settings.json", ".claude/settings.local.json", ".claude/shell-snapshots", ".claude/todos", ".claude/file-history", ".codex/config.toml", ".codex/.env", ".codex/log", ".gemini/.env", ".gemini/settings.json", ".cursor/chats", ".cursor/projects", ".codeium", ".windsurf", ".qwen", ".kiro", ".cline", ".roo", ".factory", ".augment", ".tabnine", ".config/TabNine",
	".config/Code/User/mcp.json", ".config/Code/User/globalStorage", ".config/Code/User/workspaceStorage", ".config/Code - Insiders/User/mcp.json", ".config/Code - Insiders/User/globalStorage", ".config/Code - Insiders/User/workspaceStorage", ".config/VSCodium/User/mcp.json", ".config/VSCodium/User/globalStorage", ".config/VSCodium/User/workspaceStorage", ".vscode-server/data/User/globalStorage", ".vscode-server/data/User/workspaceStorage", ".config/Windsurf",
	".config/zed/settings.json", ".local/share/zed/threads", ".local/share/amazon-q", ".local/share/kiro-cli", ".local/share/amp", ".config/amp", ".local/share/crush", ".config/crush", ".config/aichat", ".config/mods", ".local/share/mods", ".config/shell_gpt", ".config/fabric/.env",
}

// histories are what was typed into shells and the like, or copied.
var histories = []string{
	".*_history", ".*_history_*", ".*_history-*", ".bash_history", ".zsh_history", ".sh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history", ".irb_history", ".pry_history", ".duckdb_history",
	".history", ".histfile", ".zhistory", ".Rhistory", ".octave_hist", ".python-history", ".pythonhist", ".mutthistory", ".lesshst", ".viminfo", ".dbshell", ".zsh_sessions", ".bash_sessions", ".ghc/ghci_history", ".julia/logs", ".ammonite/history", ".ipython/profile_default/history.sqlite",
	".local/state/bash", ".local/state/zsh", ".local/share/zsh/history", ".local/state/python_history", ".local/state/lesshst", ".local/share/fish/fish_history", ".local/share/powershell/PSReadLine", ".local/share/atuin", ".local/share/mcfly", ".local/share/nushell", ".config/nushell/history.*", ".local/state/nvim",
	".local/share/klipper", ".cache/greenclip*", ".config/copyq", ".local/share/copyq", ".cache/clipman*",
	".config/zsh/.zsh_history", ".config/zsh/.zhistory", ".config/zsh/.histfile", ".config/zsh/*history*", ".cache/zsh/history", ".cache/zsh/*history*", ".local/share/zsh/*history*", ".config/fish/fish_history", ".local/share/fish", ".cache/cliphist", ".local/share/clipman.json", ".local/share/gpaste", ".cache/xfce4/clipman", ".config/Code/User/History", ".config/Code - Insiders/User/History", ".config/VSCodium/User/History", ".vscode-server/data/User/History",
	".emacs.d/savehist", ".emacs.d/history", ".emacs.d/auto-save-list", ".config/emacs/savehist", ".config/emacs/history", ".config/emacs/auto-save-list", ".config/litecli/history",
}

// ofSystem are what of the host is private to it, as patterns.
var ofSystem = []string{
	"/etc/shadow*", "/etc/gshadow*", "/etc/passwd-", "/etc/group-", "/etc/sudoers*", "/etc/security/opasswd", "/etc/ssh/*key*",
	"/etc/ssl/private", "/etc/pki/tls/private", "/etc/pki/CA/private", "/etc/letsencrypt", "/etc/krb5.keytab", "/etc/crypttab", "/etc/credstore*",
	"/etc/tine*", "/etc/kubernetes", "/etc/rancher", "/etc/docker", "/etc/containers/auth.json", "/etc/NetworkManager/system-connections", "/etc/wpa_supplicant", "/etc/wireguard", "/etc/openvpn", "/etc/ppp",
	"/var/lib/tine*", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/rancher", "/var/lib/cni", "/var/lib/lxc", "/var/lib/lxd", "/var/lib/libvirt", "/var/lib/machines",
	"/var/lib/postgresql", "/var/lib/mysql", "/var/lib/redis", "/var/lib/mongodb", "/var/lib/private", "/var/lib/sss", "/var/lib/cloud", "/var/lib/NetworkManager", "/var/lib/bluetooth", "/var/lib/systemd", "/var/lib/samba",
	"/var/log", "/var/spool", "/var/mail", "/var/backups", "/var/crash", "/var/cache/debconf",
	"/run/docker.sock", "/run/containerd", "/run/podman", "/run/crio", "/run/dbus", "/run/user", "/run/secrets", "/run/credentials",
}
