package secret

import "testing"

func TestNames(t *testing.T) {
	for class, names := range map[Class][]string{
		Secret: {"password", "PASSWORD", "userPassword", "db-password", "passwd", "token", "accessToken", "access_token",
			"ACCESSTOKEN", "X-Auth-Token", "api_key", "apiKey", "APIKey", "apikey", "X-Api-Key", "authorization", "Proxy-Authorization",
			"cookie", "Set-Cookie", "private_key", "privateKeyPem", "client_secret", "secret_id", "password_hash", "auth", "basicAuth",
			"credentials", "aws_secret_access_key", "github_pat", "password2", "dsn", "jwt", "refresh.token", "sessionToken"},
		SecretText: {"tokens", "OPENAI_KEY", "encryptionKeys", "db_pass", "signing-keys", "access_tokens", "DBPASS", "smtpPass", "keypass"},
		Innocent: {"", "max_tokens", "maxTokens", "token_count", "tokenCount", "total_tokens", "prompt_tokens", "completion_tokens",
			"token_type", "token_endpoint", "token_file", "API_KEY_FILE", "password_path", "key", "keys", "primary_key", "public_key",
			"sortKey", "author", "progressToken", "nextPageToken", "next_page_token", "nextpagetoken", "authorization_servers",
			"auth_type", "pass_rate", "path", "PWD", "OLDPWD", "monkey", "tokenizer", "secretary", "name", "password_length",
			"input_tokens_details", "has_password", "key_id", "signature", "session_id", "COMPASS", "bypass", "passes"},
	} {
		for _, n := range names {
			if got := ClassOf(n); got != class {
				t.Errorf("ClassOf(%q) = %d, want %d", n, got, class)
			}
		}
	}
}
