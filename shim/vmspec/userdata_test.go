package vmspec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// TestCompressedUserData: Terraform and others compress user data, which cloud-init takes.
func TestCompressedUserData(t *testing.T) {
	const text = "#cloud-config\nhostname: web\n"
	for name, c := range map[string]struct {
		data []byte
		want string // of the error
	}{
		"sound":     {zipped(t, text), ""},
		"cut":       {zipped(t, text)[:20], "gzip: unexpected EOF"},
		"not text":  {zipped(t, "\xff\xfe"), "UTF-8"},
		"too large": {zipped(t, strings.Repeat("a", maxUserData+1)), "more than 1048576 bytes"},
	} {
		encoded := base64.StdEncoding.EncodeToString(c.data)
		got, problems := readCloudInit(field.NewPath("x"), &kubevirt.CloudInitNoCloudSource{UserDataBase64: encoded})
		if c.want == "" && (len(problems) > 0 || got.userData != text) {
			t.Errorf("%s: %q, %v", name, got.userData, problems)
		}
		if c.want != "" && (len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, problems, c.want)
		}
	}
	// cloud-init does not decompress the network's.
	_, problems := readCloudInit(field.NewPath("x"), &kubevirt.CloudInitNoCloudSource{NetworkDataBase64: base64.StdEncoding.EncodeToString(zipped(t, text))})
	if len(problems) != 1 {
		t.Errorf("network data: %v", problems)
	}
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
