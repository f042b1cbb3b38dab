// Package keyplaces is the list of places at which people and programs keep keys,
// tokens, passwords and what was typed: of a home, of projects, and of the system. It
// knows names alone. Sandboxes hide these places, and a config that would show or copy
// one is refused.
//
// A place is added where a program's documentation, or a scanner for secrets, says that
// it holds one. A file that programs need to run is left out, or goes to a list whose
// files are shown where they are named. A folder of which programs need a part is listed
// as its files with keys and as a pattern for what else comes, and that part in notKeys.
package keyplaces

import "slices"

var ofHome = slices.Concat(
	keys, remotes, passwords, clouds, containers, registries, models, developers, databases,
	accounts, browsers, talks, wallets, assistants, editors, histories,
)

// keys are private keys, and what logs in without a password.
var keys = []string{
	".ssh", ".gnupg", ".pki", ".local/share/pki", ".cert", ".step", ".minisign", ".age", ".config/age", ".config/sops", ".caff", ".Private", "Private", "private_keys",
	"*.ppk", "*.key", "*.pem", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.jks", "*.keystore", "*.keytab", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*private*.asc", "*secret*.asc",
	".aspnet", ".dotnet/corefx/cryptography", ".microsoft/usersecrets", ".IdentityService", ".local/share/.IdentityService",
	".ecryptfs", ".fscrypt", ".vaults", ".local/share/plasma-vault", ".VeraCrypt", ".TrueCrypt", ".zuluCrypt", ".yubico", ".config/Yubico",
	".krb5", ".k5keytab", ".rhosts", ".shosts", ".Xauthority", ".ICEauthority", ".erlang.cookie", ".tsh",
	".acme.sh", ".lego", ".certbot", ".local/share/caddy", ".local/share/mkcert", ".mitmproxy", ".local/share/networkmanagement/certificates", ".appstoreconnect", ".android/adbkey", ".radicle", "Library/Keychains",
}

// remotes are of VPNs, remote desktops and programs that synchronize machines.
var remotes = []string{
	".wireguard", ".config/wireguard", ".openvpn", ".config/openvpn", "*.ovpn", ".tailscale", ".local/share/tailscale", ".cisco", ".globalprotect", ".config/protonvpn", ".cache/protonvpn", ".config/Proton", ".config/openfortivpn", ".config/netbird", "wg[0-9]*.conf",
	".putty", ".config/putty", ".vnc", ".config/tigervnc", ".anydesk", ".config/rustdesk", ".config/teamviewer", ".local/share/teamviewer15", ".x2goclient", ".nx", ".rdesktop", ".config/remmina", ".local/share/remmina", ".remmina", ".config/freerdp",
	".config/syncthing", ".local/state/syncthing", ".zrok", ".config/zrok", ".ngrok2", ".config/ngrok", ".cloudflared",
}

var passwords = []string{
	".password-store", ".config/gopass", ".local/share/gopass", ".config/keepassxc", ".cache/keepassxc", ".keepass", ".config/KeePass", "*.kdb", "*.kdbx", "*.psafe3", "*.agilekeychain", "*.opvault", "*.keychain", "*.keychain-db",
	".config/Bitwarden*", ".config/rbw", ".local/share/rbw", ".config/1Password", ".config/op", ".op", ".config/Enpass", ".config/enpass", ".local/share/Enpass", ".enpass", ".config/sinew.in", ".lpass", ".config/lpass", ".local/share/lpass",
	".config/keybase", ".local/share/keybase", ".config/NordPass", ".config/nordpass", ".config/Proton Pass", ".local/share/dashlane-cli", ".keeper", ".doppler", ".infisical", ".akeyless", ".conjurrc", ".conjuridentity",
	".local/share/keyrings", ".gnome2/keyrings", ".local/share/kwalletd", ".kde/share/apps/kwallet", ".kde4/share/apps/kwallet", ".config/kwalletrc", ".local/share/python_keyring", ".config/python_keyring",
	"bitwarden_export_*", "*.1pux", "lastpass_*.csv", "rootkey.csv", "*accessKeys.csv",
	".google_authenticator", ".config/Authy Desktop", ".config/authy", ".config/OTPClient",
	"snap/authy", "snap/nordpass", "snap/bitwarden", "snap/bw", "snap/keepassxc", "snap/1password",
	".authinfo", ".authinfo.gpg", ".netrc", ".netrc.gpg", "_netrc", ".env", ".env.*", ".envrc", ".secrets", ".credentials",
}

// clouds are of the tools with which machines, storage and services are rented and set
// up.
var clouds = []string{
	// Amazon, Microsoft, Google and other large ones.
	".aws", ".aws-sso", ".awsvault", ".saml2aws", ".okta", ".azure", ".config/gcloud", ".gsutil", ".boto", ".oci", ".aliyun", ".tccli", ".volc", ".ibmcloud", ".bluemix", ".config/yandex-cloud", ".config/openstack", "openrc.sh", "*-openrc.sh", "keystonerc_*", ".ovh.conf", ".edgerc",
	// Machines.
	".hcloud", ".config/hcloud", ".config/scw", ".config/doctl", ".tugboat", ".config/linode-cli", ".civo.json", ".vultr-cli.yaml", ".config/exoscale", ".config/upctl.yaml", ".ngc", ".runpod", ".vast_api_key", ".config/vastai", ".paperspace", ".brev", ".modal.toml", ".beam/config.ini", ".lambda_cloud", ".fluidstack", ".nebius", ".prime", ".sky", ".e2b", ".config/daytona",
	// Applications and sites.
	".fly/config.yml", ".config/netlify", ".netlify", ".local/share/com.vercel.cli", ".config/com.vercel.cli", ".wrangler", ".config/.wrangler", ".railway/config.json", ".render/cli.yaml", ".koyeb.yaml", ".platformsh", ".upsun-cli", ".supabase/access-token", ".config/heroku", ".local/share/heroku",
	".config/configstore", ".config/stripe", ".twilio-cli", ".serverlessrc", ".expo", ".config/neonctl", ".neon", ".config/turso", ".config/planetscale", ".upstash.json", ".config/upstash", ".confluent", ".convex", ".alchemy", ".config/replicate", ".config/sanity", ".contentfulrc.json", ".cf", ".sf", ".sfdx", ".slack", ".balena", ".particle", ".platformio/appstate.json",
	// Storage and backups.
	".s3cfg", ".s3cmd", ".passwd-s3fs", ".mc", ".mcli", ".b2_account_info", ".config/b2", ".config/rclone", ".rclone.conf", ".config/restic", ".config/resticprofile", ".config/borg", ".borg", ".borg-passphrase", ".config/kopia", ".cache/kopia", ".duplicacy", ".config/Duplicati", ".tarsnaprc",
	".config/onedrive", ".gdfuse", ".gdrive", ".config/gdrive3", ".config/Nextcloud", ".config/ownCloud", ".megaCmd", ".megarc", ".dropbox",
	// Infrastructure as code, and its secrets.
	".pulumi/credentials.json", ".terraform.d/credentials.tfrc.json", ".terraform.d/*", ".config/hcp", ".terraformrc", ".tofurc", ".config/opentofu", ".vault-token", ".config/vault", ".consul-token", ".nomad-token", ".chef", ".pepperrc",
	".ansible/vault_pass", ".ansible/vault_pass.txt", ".ansible/vault_password", ".ansible/galaxy_token", ".ansible_vault_pass", ".vault_pass", ".vault_pass.txt", ".vault-pass", ".vault_password",
	// What watches it.
	".dogrc", ".newrelic", ".sentryclirc", ".sentry", ".config/grafanactl", ".steampipe/config",
	// What searches the internet and its hosts.
	".shodan", ".config/shodan", ".config/censys", ".pdcp", ".config/subfinder", ".config/uncover", ".config/notify",
}

var containers = []string{
	".kube", "kubeconfig", "*.kubeconfig", ".docker/config.json", ".docker/*", ".dockercfg", ".config/containers", ".local/share/containers", ".config/helm", ".helm", ".config/argocd", ".argocd", ".minikube", ".rancher", ".talos", ".crc", ".k3d", ".config/k3d", ".config/Lens", ".config/OpenLens",
	".singularity/remote.yaml", ".singularity/docker-config.json", ".apptainer/remote.yaml", ".apptainer/docker-config.json", ".config/libvirt", ".config/lxc", ".config/incus", ".vagrant.d", ".lima/_config", ".colima/_lima/_config", ".local/share/multipass-client-certificate",
}

// registries are of the tools that fetch and publish packages.
var registries = []string{
	".npmrc", ".yarnrc", ".yarnrc.yml", ".bunfig.toml", ".config/pnpm", ".vsce", ".ovsx",
	".pypirc", ".pip", ".config/pip", ".config/pypoetry", ".config/pdm", ".config/uv", ".local/share/uv/credentials", ".config/hatch", ".condarc", ".conda/.condarc", ".conda/condarc", ".config/conda", ".mambarc", ".rattler/credentials.json",
	".anaconda", ".config/anaconda", ".continuum", ".binstar", ".config/binstar", ".local/share/binstar", ".config/anaconda-client", ".local/share/anaconda-client", "miniconda3/.condarc", "anaconda3/.condarc", "miniforge3/.condarc", "mambaforge/.condarc", "micromamba/.condarc",
	".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".local/share/gem/credentials", ".bundle/config", ".fury", ".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties", ".ivy2/.credentials", ".sbt/.credentials", ".sbt/credentials", ".config/coursier/credentials.properties", ".lein/credentials.clj", ".lein/credentials.clj.gpg",
	".nuget/NuGet", ".config/NuGet", ".composer/auth.json", ".config/composer/auth.json", ".hex/hex.config", ".cabal/config", ".pub-cache/credentials.json", ".config/dart", ".pause", ".luarocks/upload_config.lua", ".conan/.conan.db", ".conan2/.conan.db", ".conan2/credentials.json",
	".config/nix", ".config/cachix", ".config/attic", ".jfrog", ".cloudsmith", ".config/cloudsmith", ".fastlane",
}

// models are of the tools that fetch models and data, and train.
var models = []string{
	".huggingface", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".modelscope/credentials", ".kaggle", ".config/kaggle", ".openxlab", ".config/wandb", ".comet.config", "clearml.conf", ".clearml.conf", ".mlflow/credentials", ".cache/dagshub/tokens", ".config/zenml", ".prefect/profiles.toml", ".metaflowconfig", ".config/dvc", ".dlt/secrets.toml", ".config/roboflow",
	".lightning/credentials.json", ".streamlit/secrets.toml", ".jupyter/jupyter_server_config.json", ".jupyter/jupyter_notebook_config.json", ".local/share/jupyter/runtime", ".Renviron",
	".clasprc.json", ".config/earthengine", ".config/gspread", ".cdsapirc", ".ecmwfapirc", ".eumdac", ".urs_cookies",
}

// developers are of the tools around source code.
var developers = []string{
	".git-credentials", ".config/git/credentials", ".git-credential-cache", ".cache/git/credential", ".gitcookies", ".subversion/auth", ".hgrc", ".config/hg", ".bazaar/authentication.conf", ".config/breezy/authentication.conf", ".fossil", ".config/fossil.db", ".p4tickets", ".cvspass",
	".config/gh", ".python-gitlab.cfg", ".config/glab-cli", ".config/hub", ".config/tea", ".config/lab", ".gist", ".jira.d", ".config/.jira", ".config/jira", ".arcrc", ".src-config.json",
	".travis", ".circleci", ".gitlab-runner", ".buildkite-agent", ".bk.yaml", ".jenkins", ".earthly", ".turborepo", ".config/turborepo", ".config/nxcloud", ".config/depot", ".semgrep/settings.yml", ".config/ggshield", ".local/share/socket",
	".curlrc", ".config/curlrc", ".wgetrc", ".config/wgetrc", ".httpie", ".config/httpie", ".config/xh", ".postman", ".config/Postman", ".config/Insomnia", ".config/bruno", ".wakatime.cfg", ".wakatime", ".config/asciinema",
	".config/tine/tine.yaml", ".config/tine/tine.yml", ".local/state/tine",
}

var databases = []string{
	".pgpass", ".pg_service.conf", ".config/pgcli", ".pgadmin", ".my.cnf", ".mylogin.cnf", ".mysql", ".myclirc", ".config/mycli", ".mongodb", ".mongorc.js", ".mongoshrc.js", ".config/MongoDB Compass", ".3T", ".robomongo", ".config/robo3t", ".rediscli_auth", ".redisclirc", ".redisinsight-app", ".cassandra", ".cqlshrc", ".influxdbv2", ".clickhouse-client",
	".dbeaver", ".dbeaver4", ".dbeaver-data-sources.xml", ".local/share/DBeaverData", "snap/dbeaver-ce", ".config/beekeeper-studio", ".dbgate", ".dbvis", ".squirrel-sql", ".sqldeveloper", ".sqlcmd", ".usqlpass", ".odbc.ini", ".freetds.conf",
	".databrickscfg", ".databricks/token-cache.json", ".snowflake", ".snowsql", ".config/snowflake", ".dbt/profiles.yml", ".bigqueryrc", ".duckdb/stored_secrets",
}

// accounts are of mail, calendars and files elsewhere.
var accounts = []string{
	".thunderbird", ".config/evolution", ".local/share/evolution", ".config/geary", ".local/share/geary", ".claws-mail", ".config/Mailspring", ".config/protonmail", ".local/share/protonmail", ".config/hydroxide", ".config/goa-1.0",
	".config/msmtp", ".msmtprc", ".esmtprc", ".mailrc", ".fetchmailrc", ".getmail", ".config/getmail", ".mbsyncrc", ".config/isyncrc", ".mpoprc", ".config/mpop", ".offlineimaprc", ".config/offlineimap", ".mutt", ".muttrc", ".config/mutt", ".config/neomutt", ".neomuttrc", ".config/aerc", ".config/himalaya", ".config/meli", ".pinerc", ".pine-passfile",
	".config/vdirsyncer", ".vdirsyncer", ".config/gcalcli", ".local/share/gcalcli", ".gcalcli_oauth", ".config/newsboat/config", ".newsboat/config", ".todoist.config.json", ".config/joplin*", ".config/Notion*",
	".smbcredentials", ".davfs2", ".config/davfs2", ".config/filezilla", ".filezilla", ".lftp", ".lftprc", ".config/lftp", ".local/share/lftp", ".ncftp", ".duck", "cookies.txt", ".config/gallery-dl",
	".local/share/Steam/config", ".minecraft/launcher_accounts*.json", ".config/heroic", ".config/legendary",
}

var browsers = []string{
	".mozilla", ".config/mozilla", ".librewolf", ".waterfox", ".zen", ".config/zen", ".floorp", ".icecat", ".moonchild productions", ".tor-browser*", ".local/share/torbrowser",
	".config/google-chrome*", ".config/chromium*", ".config/ungoogled-chromium*", ".config/BraveSoftware", ".config/microsoft-edge*", ".config/opera*", ".config/vivaldi*", ".config/yandex-browser*", ".config/thorium*", ".config/iridium*", ".config/naver-whale*", ".config/net.imput.helium",
	".config/qutebrowser", ".local/share/qutebrowser", ".config/falkon", ".local/share/epiphany", ".config/epiphany", ".local/share/nyxt", ".local/share/luakit", ".surf", ".w3m", ".elinks", ".lynx_cookies",
	".cache/mozilla", ".cache/google-chrome*", ".cache/chromium*", ".cache/BraveSoftware", ".var/app", "snap/firefox", "snap/chromium", "snap/thunderbird", "snap/brave", "snap/opera",
}

// talks are of programs that people talk to each other with.
var talks = []string{
	".config/Slack", ".config/discord*", ".config/vesktop", ".config/WebCord", ".config/Signal*", ".local/share/signal-cli", ".config/Element*", ".local/share/TelegramDesktop", ".TelegramDesktop", ".local/share/64Gram", ".config/teams*", ".config/Microsoft", ".config/skypeforlinux", ".config/Mattermost", ".config/Rocket.Chat", ".config/Zulip", ".zuliprc", ".config/WhatsApp*", ".config/Session", ".config/Wire",
	".config/hexchat", ".xchat2", ".irssi", ".config/irssi", ".weechat", ".config/weechat", ".local/share/weechat", ".config/senpai", ".config/catgirl", ".znc", ".purple", ".config/gajim", ".local/share/gajim", ".local/share/dino", ".config/profanity", ".local/share/profanity", ".local/share/fractal", ".config/nheko", ".local/share/nheko", ".local/share/jami", ".config/tox",
	".zoom", ".config/zoom.conf", ".config/zoomus.conf", "snap/slack", "snap/discord", "snap/signal-desktop", "snap/telegram-desktop", "snap/element-desktop",
}

var wallets = []string{
	"wallet.dat", ".bitcoin", ".litecoin", ".dogecoin", ".dashcore", ".zcash", ".monero", ".bitmonero", "Monero", ".electrum*", ".armory", ".walletwasabi", ".sparrow", ".ethereum", ".local/share/io.parity.ethereum", ".foundry/keystores", ".brownie/accounts", ".config/solana", ".lnd", ".lightning/bitcoin", ".eclair", ".ipfs/config", ".ipfs/keystore",
	".config/Exodus", ".config/atomic", ".config/Coinomi", ".coinomi", ".config/Guarda", ".config/com.liberty.jaxx", ".config/Ledger Live", ".config/@trezor", ".local/share/Daedalus", ".near-credentials", ".sui", ".aptos", ".starkli-wallets", ".starknet_accounts", ".octez-client", ".tezos-client", ".config/stellar", ".avalanche-cli/key", ".config/dfx",
}

// assistants are of programs that talk to models: their keys, and what was said.
var assistants = []string{
	".claude.json", ".claude.json.backup*", ".claude/.credentials.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/history.jsonl", ".claude/projects", ".claude/shell-snapshots", ".claude/todos", ".claude/file-history", ".claude/backups", ".claude/debug", ".claude/paste-cache", ".claude/session-env", ".config/Claude",
	".codex/auth.json", ".codex/config.toml", ".codex/.env", ".codex/history.jsonl", ".codex/sessions", ".codex/archived_sessions", ".codex/log", ".gemini/.env", ".gemini/settings.json", ".gemini/oauth_creds.json", ".gemini/mcp-oauth-tokens*.json", ".gemini/google_accounts.json", ".gemini/tmp", ".gemini/history", ".gemini/antigravity", ".copilot", ".config/github-copilot", ".config/gh-copilot",
	".cursor/mcp.json", ".cursor/chats", ".cursor/projects", ".config/Cursor", ".codeium", ".windsurf", ".config/Windsurf", ".qwen", ".kiro", ".cline", ".roo", ".kilocode", ".local/share/kilo", ".factory", ".augment", ".tabnine", ".config/TabNine", ".grok", ".amazonq", ".local/share/amazon-q", ".local/share/kiro-cli", ".kimi", ".vibe", ".iflow", ".junie", ".rovodev",
	".cody", ".config/[Cc]ody*", ".local/share/[Cc]ody*", ".aider*", ".continue/config.yaml", ".continue/config.json", ".continue/.env", ".continue/sessions", ".config/goose", ".local/share/goose", ".config/opencode", ".local/share/opencode", ".local/share/amp", ".config/amp", ".local/share/crush", ".config/crush", ".openhands", ".openhands-state", ".openclaw", ".clawdbot", ".letta", ".pi/agent",
	".config/io.datasette.llm", ".config/openai", ".openai", ".config/anthropic", ".anthropic", ".config/aichat", ".config/mods", ".local/share/mods", ".config/shell_gpt", ".config/fabric/.env", ".config/gptme", ".local/share/gptme", ".config/open-interpreter", ".ollama/id_ed25519", ".ollama/history", ".lmstudio/conversations", ".lmstudio/mcp.json", ".lmstudio/.internal", ".config/LM Studio", ".config/Jan", ".config/CherryStudio",
	".mcp.json", ".mcp-auth", ".config/mcp/*.json", ".config/mcphub", ".config/mcpm", ".config/toolhive", ".smithery", ".composio", ".arcade", ".n8n", ".flowise", ".node-red/*cred*.json", ".node-red/.config.*.json", ".homeassistant/secrets.yaml", ".homeassistant/.storage",
}

// editors have keys of their extensions in their settings, and copies of what was
// edited.
var editors = []string{
	".config/Code/User/settings.json", ".config/Code/User/mcp.json", ".config/Code/User/globalStorage", ".config/Code/User/workspaceStorage", ".config/Code/User/profiles", ".config/Code/User/History", ".config/Code/Backups",
	".config/Code - Insiders/User/settings.json", ".config/Code - Insiders/User/mcp.json", ".config/Code - Insiders/User/globalStorage", ".config/Code - Insiders/User/workspaceStorage", ".config/Code - Insiders/User/profiles", ".config/Code - Insiders/User/History", ".config/Code - Insiders/Backups",
	".config/VSCodium/User/settings.json", ".config/VSCodium/User/mcp.json", ".config/VSCodium/User/globalStorage", ".config/VSCodium/User/workspaceStorage", ".config/VSCodium/User/profiles", ".config/VSCodium/User/History", ".config/VSCodium/Backups",
	".vscode/mcp.json", ".vscode-server/data/User", ".vscode-server/data/Machine", ".vscode-server-insiders/data/User", ".vscode-server-insiders/data/Machine", ".vscodium-server/data/User", ".cursor-server/data/User", ".windsurf-server/data/User", ".config/Kiro", ".config/Trae", ".config/Antigravity",
	".config/zed/settings.json", ".local/share/zed/threads", ".local/share/zed/conversations", ".local/share/zed/db", ".config/JetBrains", ".cache/JetBrains", ".java/.userPrefs", ".config/sublime-text/Local", ".config/sublime-text-3/Local", ".config/warp-terminal", ".local/state/warp-terminal",
	".viminfo", ".vim/viminfo", ".vim/.netrwhist", ".vim/undo*", ".vim/swap*", ".vim/backup*", ".cache/vim", ".local/state/vim", ".local/state/nvim", ".local/share/nvim/shada", ".local/share/nvim/swap", ".local/share/nvim/undo", ".local/share/nvim/backup",
	".emacs.d/savehist", ".emacs.d/history", ".emacs.d/recentf", ".emacs.d/auto-save-list", ".emacs.d/eshell/history", ".emacs.d/url/cookies", ".config/emacs/savehist", ".config/emacs/history", ".config/emacs/recentf", ".config/emacs/auto-save-list", ".config/emacs/eshell/history",
}

// histories are what was typed into shells and the like, copied, opened or deleted.
var histories = []string{
	".*_history", ".*_history_*", ".*_history-*", ".bash_history", ".zsh_history", ".sh_history", ".python_history", ".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history", ".irb_history", ".pry_history", ".duckdb_history",
	".history", ".histfile", ".zhistory", ".Rhistory", ".octave_hist", ".python-history", ".pythonhist", ".mutthistory", ".lesshst", ".dbshell", ".mongosh", ".zsh_sessions", ".bash_sessions", ".ghc/ghci_history", ".julia/logs", ".ammonite/history", ".ipython/profile_default/history.sqlite", ".config/litecli/history",
	".local/state/bash", ".local/state/zsh", ".local/state/python_history", ".local/state/lesshst", ".config/zsh/.zsh_history", ".config/zsh/.zhistory", ".config/zsh/.histfile", ".config/zsh/*history*", ".cache/zsh/history", ".cache/zsh/*history*", ".local/share/zsh/history", ".local/share/zsh/*history*",
	".local/share/fish", ".config/fish/fish_history", ".config/fish/fish_variables", ".local/share/powershell/PSReadLine", ".local/share/atuin", ".local/share/mcfly", ".local/share/nushell", ".config/nushell/history.*",
	".tmux/resurrect", ".local/share/tmux/resurrect", ".config/tmux/resurrect", ".cache/zellij", ".local/share/asciinema",
	".local/share/klipper", ".cache/greenclip*", ".config/copyq", ".local/share/copyq", ".cache/clipman*", ".cache/cliphist", ".local/share/clipman.json", ".local/share/gpaste", ".cache/xfce4/clipman",
	".local/share/recently-used.xbel", ".recently-used.xbel", ".recently-used", ".local/share/zeitgeist", ".local/share/activitywatch", ".cache/tracker3", ".local/share/tracker", ".local/share/baloo", ".recoll", ".cache/thumbnails", ".thumbnails", ".local/share/Trash", ".Trash", ".xsession-errors*",
}

// ofStart are the files of a home that shells and git start with. Many have tokens in
// them, and some are needed, so that one that is named is shown.
var ofStart = []string{
	".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".kshrc", ".cshrc", ".tcshrc", ".login", ".exports", ".extra", ".functions", ".pam_environment", ".config/environment.d",
	".config/zsh/.zshrc", ".config/zsh/.zshenv", ".config/zsh/.zprofile", ".config/fish/config.fish", ".config/fish/conf.d", ".config/nushell/env.nu", ".config/nushell/config.nu", ".gitconfig", ".config/git/config",
}

// inProjects are names of files with keys in a project's folder, as patterns.
//
// A project's .mcp.json is often checked in, without keys. It is here still: many have the
// keys of servers in them, agents that read it run outside of sandboxes, and a server
// that needs it can have it by name.
var inProjects = []string{
	// Variables, and settings that are for secrets alone.
	".env", ".env.*", "*.env", ".envrc", ".dev.vars", ".dev.vars.*", ".secrets", ".secrets.toml", ".secrets.yml", ".secrets.yaml", ".secrets.json", "secrets.toml", "secrets.yml", "secrets.yaml", "secrets.json", "secrets.properties", "local.settings.json", "*.tfvars", "*.tfvars.json", "*.tfstate", "*.tfstate.backup", ".vault_pass", ".vault_pass.txt", ".vault-pass", ".vault_password", "vault_pass", "vault_pass.txt", "vault_password", "vault_password.txt",
	// Logins.
	".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", "pip.conf", "auth.json", ".git-credentials", ".pgpass", ".my.cnf", ".s3cfg", ".boto", ".dockercfg", ".edgerc", ".databrickscfg", ".htpasswd", ".mcp.json", "mcp.json", "mcp_config.json", "cline_mcp_settings.json", "claude_desktop_config.json", ".ftpconfig", "sftp-config.json", ".remote-sync.json", "wp-config.php", "*.publishsettings", "cookies.txt", ".Renviron", ".sentryclirc", "sentry.properties", ".megarc", ".lftprc", ".upstash.json", ".python-gitlab.cfg", "openrc.sh", "*-openrc.sh", "keystonerc_*", "clouds.yaml",
	"token.json", "token.pickle", "storage_state.json", "credentials.json", "credentials.yml", "credentials.yaml", "credentials.toml", "credentials.csv", "rootkey.csv", "*accessKeys.csv", "client_secret*.json", "service-account*.json", "service_account*.json", "serviceAccountKey*.json", "*-adminsdk-*.json", "gcp-key.json", "gcp-credentials.json", "google-credentials.json", "gha-creds-*.json", "application_default_credentials.json", "kubeconfig", "*.kubeconfig", "*kubeconfig.yaml", "*kubeconfig.yml",
	// Private keys and databases of passwords.
	"*.pem", "*.key", "*.ppk", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.jks", "*.keystore", "*.keytab", "*.ovpn", "wg[0-9]*.conf", "key.properties", "keystore.properties", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519", "*private*.asc", "*secret*.asc", "*.kdb", "*.kdbx", "*.psafe3", "*.1pux", "bitwarden_export_*", "lastpass_*.csv", "wallet.dat",
}

// dirsInProjects are such folders.
var dirsInProjects = []string{".aws", ".azure", ".ssh", ".gnupg", ".kube", ".secrets", "Enpass", "*.agilekeychain", "*.opvault"}

// belowProjects are files in folders of a project that hold other things too.
var belowProjects = []string{
	".vscode/mcp.json", ".vscode/sftp.json", ".cursor/mcp.json", ".roo/mcp.json", ".kiro/settings/mcp.json", ".amazonq/mcp.json", ".grok/config.toml", ".grok/settings.json", ".claude/settings.local.json", ".claude/.credentials.json", ".codex/config.toml", ".codex/auth.json", ".gemini/.env", ".gemini/settings.json",
	".docker/config.json", ".streamlit/secrets.toml", ".dlt/secrets.toml", ".cargo/credentials", ".cargo/credentials.toml", ".bundle/config", ".terraform/terraform.tfstate", ".vercel/.env*", ".idea/dataSources.local.xml", ".idea/webServers.xml", ".idea/WebServers.xml", "config/master.key", "config/secrets.yml", "wireguard/*.conf", "playwright/.auth/*.json",
}

// notSecret are names of files that show what another has to have.
var notSecret = []string{"*.example", "*.sample", "*.template", "*.dist", "*.defaults", "example.*", "sample.*", "template.env"}

// notKeys are exceptions from the patterns above: certificates and public keys, which
// programs need to reach others, and programs in folders that hold logins too. A path
// here is relative to a home.
var notKeys = []string{
	"ca.pem", "cacert.pem", "cacerts.pem", "ca-cert.pem", "ca_cert.pem", "ca-bundle.pem", "*-ca-bundle.pem", "ca-certificates.pem", "root-ca.pem", "rootCA.pem", "roots.pem", "server-ca.pem", "global-bundle.pem", "isrgrootx[0-9].pem",
	"cert.pem", "certificate.pem", "chain.pem", "fullchain.pem", "cert[0-9].pem", "chain[0-9].pem", "fullchain[0-9].pem", "dhparam.pem", "dhparams.pem",
	"*.pub", "*.pub.pem", "public.pem", "public.key", "public-key.pem", "public_key.pem", "pubkey.pem",
	".docker/cli-plugins", ".terraform.d/plugins", ".terraform.d/plugin-cache",
}

// notProjects are folders of what was fetched or made, with many others in them.
var notProjects = []string{
	"node_modules", "site-packages", "__pycache__", ".git", ".hg", ".svn", ".venv", "venv", ".tox", ".cache", ".npm", ".pnpm-store", ".yarn", ".bun", ".deno", ".rustup",
	".nvm", ".pyenv", ".rbenv", ".sdkman", ".asdf", ".gradle", ".m2", ".ivy2", ".nuget", ".conda", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".Trash", ".thumbnails",
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
