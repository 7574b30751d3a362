package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/toolbus/toolbus/bus"
)

func flags(t *testing.T, args ...string) *NATSFlags {
	t.Helper()
	var f NATSFlags
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.Bind(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &f
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// clear takes the variables out of the environment that whoever runs the tests may have set.
func clear(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "TOOLBUS_") {
			t.Setenv(name, "")
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestFlagsOverEnvironmentOverDefault(t *testing.T) {
	clear(t)
	got, err := flags(t).Config()
	if err != nil || !reflect.DeepEqual(got, bus.Config{}) {
		t.Errorf("nothing given: Config = %+v, %v, want the zero value", got, err)
	}

	t.Setenv("TOOLBUS_NATS_URL", "nats://env:1")
	t.Setenv("TOOLBUS_PREFIX", "env")
	t.Setenv("TOOLBUS_TLS_FIRST", "true")
	got, err = flags(t, "--nats-url", "nats://flag:2", "--tls-first=false").Config()
	want := bus.Config{URL: "nats://flag:2", Prefix: "env"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Config = %+v, %v, want %+v", got, err, want)
	}
}

// Every field of Config has a flag, a variable and a key, all of the same name, and reaches the bus.
func TestEveryFieldIsBound(t *testing.T) {
	clear(t)
	typ := reflect.TypeFor[Config]()
	for i := range typ.NumField() {
		field := typ.Field(i)
		key := field.Tag.Get("yaml")
		if want := "TOOLBUS_" + strings.ToUpper(key); field.Tag.Get("env") != want {
			t.Errorf("%s: env %q, want %q", field.Name, field.Tag.Get("env"), want)
		}
		value := "x"
		if field.Type.Kind() == reflect.Bool {
			value = "true"
		}
		f := flags(t, "--"+strings.ReplaceAll(key, "_", "-")+"="+value)
		if reflect.ValueOf(f.Over(Config{})).Field(i).IsZero() {
			t.Errorf("%s: its flag does not set it", field.Name)
		}
		var c Config
		if err := readEnv(&c, []string{field.Tag.Get("env") + "=" + value}); err != nil || reflect.ValueOf(c).Field(i).IsZero() {
			t.Errorf("%s: its variable does not set it (%v)", field.Name, err)
		}
	}
}

func TestSecretsComeFromFiles(t *testing.T) {
	clear(t)
	got, err := flags(t, "--user=ann", "--password-file="+file(t, "p w\n")).Config()
	if err != nil || got.User != "ann" || got.Password != "p w" {
		t.Errorf("Config = %+v, %v, want the password without its line end", got, err)
	}
	if got, err = flags(t, "--token-file="+file(t, "tok\r\n")).Config(); err != nil || got.Token != "tok" {
		t.Errorf("Config = %+v, %v, want the token without its line end", got, err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no user":    {[]string{"--password-file=x"}, "--password-file is given without --user; give both"},
		"no file":    {[]string{"--token-file=/no/such"}, "--token-file: open /no/such: no such file or directory"},
		"empty file": {[]string{"--token-file=" + file(t, "\n")}, "is empty"},
		"huge file":  {[]string{"--token-file=" + file(t, strings.Repeat("x", maxSecret+1))}, "is larger than 65536 bytes; is it the right file?"},
	} {
		if _, err := flags(t, tc.args...).Config(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %s", name, err, tc.want)
		}
	}
}

func TestEnvironmentMistake(t *testing.T) {
	var c Config
	err := readEnv(&c, []string{"TOOLBUS_TLS_FIRST=perhaps"})
	if err == nil || !strings.Contains(err.Error(), "TLSFirst must be a bool") {
		t.Errorf("readEnv = %v, want it to name the field and the type", err)
	}
}
