package vm

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// sourceRow is a source of a template of a DataVolume.
type sourceRow struct{ name, spec string }

// sourceRows returns each source that CDI's API has, and variants that a cluster without CDI treats in another way.
func sourceRows() []sourceRow {
	all := []sourceRow{
		{"`blank`", `"source": {"blank": {}}`},
		{"`registry`: `docker://IMAGE`", `"source": {"registry": {"url": "docker://registry.example.com/guest:1"}}`},
		{"`registry` with a `secretRef`", `"source": {"registry": {"url": "docker://registry.example.com/guest:1", "secretRef": "s"}}`},
		{"`registry` with a `certConfigMap`", `"source": {"registry": {"url": "docker://registry.example.com/guest:1", "certConfigMap": "c"}}`},
		{"`registry`: another URL, or `imageStream`", `"source": {"registry": {"url": "oci-archive://guest"}}`},
		{"`pvc` of the VM's namespace", `"source": {"pvc": {"name": "golden"}}`},
		{"`pvc` of another namespace", `"source": {"pvc": {"namespace": "images", "name": "golden"}}`},
		{"`snapshot` of the VM's namespace", `"source": {"snapshot": {"name": "yesterday"}}`},
		{"`snapshot` of another namespace", `"source": {"snapshot": {"namespace": "images", "name": "yesterday"}}`},
	}
	for _, name := range []string{"http", "s3", "gcs", "upload", "imageio", "vddk"} {
		all = append(all, sourceRow{"`" + name + "`", fmt.Sprintf(`"source": {%q: {}}`, name)})
	}
	return append(all, sourceRow{"`sourceRef`: a DataSource", `"sourceRef": {"kind": "DataSource", "name": "debian"}`})
}

// withoutCDI returns what fills the PVC of a template in a cluster without CDI, as the reconciler has it.
func withoutCDI(t *testing.T, spec string) string {
	t.Helper()
	g := newRig(t)
	g.r.dataVolumes = fakeDataVolumes(nil)
	g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "golden"}}, snapshotOf("yesterday", "1Gi"))
	g.add(kubevirt.RunStrategyAlways, ofTemplate(t, spec))
	_, _ = g.try()
	made := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
	there, failure := g.Exists(t, made), g.failure()
	switch {
	case there == (failure != nil) || there != (g.vmi() != nil):
		t.Errorf("%s: PVC %t, instance %v, failure %+v", spec, there, g.vmi(), failure)
		return ""
	case !there && !strings.Contains(failure.Message, "needs CDI"):
		t.Errorf("%s: %s", spec, failure.Message)
		return ""
	case !there:
		return "refused"
	case made.Annotations[pod.AnnotationOrigin] != "":
		return "the VM's first node copies the image"
	case made.Spec.DataSource != nil:
		return "the storage driver copies it"
	}
	return "the VM's first node makes an empty disk"
}

// withCDI returns what fills the PVC of a template in a cluster with CDI.
func withCDI(t *testing.T, spec string) string {
	t.Helper()
	filled := func(change ...func(*kubevirt.VirtualMachine)) bool {
		g := newRig(t)
		made := fakeDataVolumes{}
		g.r.dataVolumes = made
		g.add(kubevirt.RunStrategyAlways, append(change, ofTemplate(t, spec))...)
		g.reconcile()
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "data"}}
		return made["data"] != nil && !g.Exists(t, pvc)
	}
	if !filled() {
		t.Errorf("%s: no DataVolume", spec)
	}
	if strings.Contains(spec, `"namespace"`) {
		return "CDI, if the VM's service account may copy it"
	}
	return "CDI"
}

// TestSources walks the sources, and holds the page's table against them. With -update it writes the table.
func TestSources(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| source of a template | with CDI | without CDI |\n|---|---|---|\n")
	for _, row := range sourceRows() {
		spec := `{` + storage + `, ` + row.spec + `}`
		fmt.Fprintf(&table, "| %s | %s | %s |\n", row.name, withCDI(t, spec), withoutCDI(t, spec))
	}
	table.WriteString("\n")
	const page = "../../docs/datavolumes.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`(?s)<!-- sources: begin[^>]*-->\n(.*?)<!-- sources: end -->\n`).FindSubmatchIndex(text)
	if at == nil {
		t.Fatalf("%s has no marks", page)
	}
	have := string(text[at[2]:at[3]])
	if golden.FlagUpdate() && have != table.String() {
		text = slices.Concat(text[:at[2]], []byte(table.String()), text[at[3]:])
		if err := os.WriteFile(page, text, 0o600); err != nil {
			t.Fatal(err)
		}
		have = table.String()
	}
	if diff := cmp.Diff(table.String(), have); diff != "" {
		t.Errorf("%s is out of date; run with -update: (-code +page)\n%s", page, diff)
	}
}
