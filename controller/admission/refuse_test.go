package admission_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	manifests "github.com/nodevirt/nodevirt/controller/manifest"
)

// mark begins each line of a manifest in testdata/refused that holds the expected
// refusal. test/cluster reads these too.
const mark = "#: "

// TestRefused compares the refusal of each manifest in testdata/refused with
// the one above it, from both webhooks and in both versions of the API.
func TestRefused(t *testing.T) {
	r := newRig(t)
	all := files(t, "testdata/refused")
	if len(all) < 60 {
		t.Fatalf("only %d manifests", len(all))
	}
	for path, text := range all {
		t.Run(path, func(t *testing.T) {
			want, body := split(text)
			answer := r.ask(t, admission.PathValidate, manifest(t, body, ""), nil)
			got := refusal(t, answer)
			if golden.FlagUpdate() {
				if err := os.WriteFile(path, []byte(mark+strings.ReplaceAll(got, "\n", "\n"+mark)+"\n"+body), 0o644); err != nil {
					t.Fatal(err)
				}
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("run with -update: (-file +webhook)\n%s", diff)
			}
			for _, version := range []string{"v1", "v1alpha3"} {
				for _, hook := range []string{admission.PathDefault, admission.PathValidate} {
					if again := refusal(t, r.ask(t, hook, manifest(t, body, version), nil)); again != got {
						t.Errorf("%s of %s says %s", hook, version, again)
					}
				}
			}
		})
	}
}

// split divides a file into the refusal and the manifest.
func split(text string) (refusal, body string) {
	var lines []string
	for line := range strings.Lines(text) {
		if said, ok := strings.CutPrefix(line, mark); ok {
			lines = append(lines, strings.TrimSuffix(said, "\n"))
		} else {
			body += line
		}
	}
	return strings.Join(lines, "\n"), body
}

// refusal is what a webhook says, for people and, which must be as much, for programs.
func refusal(t *testing.T, answer *admissionv1.AdmissionResponse) string {
	t.Helper()
	if answer.Allowed {
		t.Fatal("taken")
	}
	if answer.Result.Code != 422 || answer.Result.Reason != "Invalid" {
		t.Errorf("code %d, reason %s", answer.Result.Code, answer.Result.Reason)
	}
	for _, cause := range answer.Result.Details.Causes {
		want := cause.Field + ": " + cause.Message
		if strings.Contains(cause.Message, cause.Field) { // KubeVirt's words
			want = cause.Message
		}
		if cause.Field == "" || !strings.Contains(answer.Result.Message, want) {
			t.Errorf("cause %+v is not in the message:\n%s", cause, answer.Result.Message)
		}
	}
	if n := len(answer.Result.Details.Causes); n == 0 {
		t.Error("no causes")
	}
	return answer.Result.Message
}

// TestHookSidecars: a cluster that allows hook sidecars takes them, and checks what they are.
func TestHookSidecars(t *testing.T) {
	r := newRigIn(t, gated(manifests.Gates{HookSidecars: true}))
	text, err := os.ReadFile("testdata/refused/annotation-hook-sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, body := split(string(text))
	if answer := r.ask(t, admission.PathValidate, manifest(t, body, ""), nil); !answer.Allowed {
		t.Errorf("%+v", answer.Result)
	}
	bad := strings.Replace(body, `"image"`, `"privileged": true, "image"`, 1)
	want := `metadata.annotations[hooks.kubevirt.io/hookSidecars]: not a JSON list of sidecars: json: unknown field "privileged"`
	if got := refusal(t, r.ask(t, admission.PathValidate, manifest(t, bad, ""), nil)); !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	nameless := regexp.MustCompile(`"image": *"[^"]*"`).ReplaceAllString(body, `"args": []`)
	want = "metadata.annotations[hooks.kubevirt.io/hookSidecars]: [0].image: name one, such as KubeVirt's sidecar-shim"
	if got := refusal(t, r.ask(t, admission.PathValidate, manifest(t, nameless, ""), nil)); !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	r = newRigIn(t, gated(manifests.Gates{HookSidecars: true, HookImage: "registry.example.com/sidecar-shim:1"}))
	if answer := r.ask(t, admission.PathValidate, manifest(t, nameless, ""), nil); !answer.Allowed {
		t.Errorf("with a default: %+v", answer.Result)
	}
}

// TestHostDisks: a cluster that allows host disks takes what others refuse.
func TestHostDisks(t *testing.T) {
	r := newRigIn(t, gated(manifests.Gates{HostDisks: true}))
	for _, name := range []string{"host-disk", "vm-host-disk", "pool-host-disk"} {
		text, err := os.ReadFile("testdata/refused/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, body := split(string(text))
		if answer := r.ask(t, admission.PathValidate, manifest(t, body, ""), nil); !answer.Allowed {
			t.Errorf("%s: %+v", name, answer.Result)
		}
	}
}
