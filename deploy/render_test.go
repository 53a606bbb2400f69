package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v2"

	"github.com/nodevirt/nodevirt/test/needs"
)

// object is a Kubernetes object as YAML has it.
type object = map[any]any

// render is what test/tools/render makes: objects by kind, namespace and name.
func render(t *testing.T, args ...string) map[string]object {
	t.Helper()
	needs.Parts(t, "bin/render")
	cmd := exec.CommandContext(t.Context(), "../bin/render", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, &stderr)
	}
	all := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		if len(o) == 0 {
			continue
		}
		meta, _ := o["metadata"].(object)
		key := fmt.Sprint(o["kind"], " ", meta["namespace"], " ", meta["name"])
		if _, twice := all[key]; twice {
			t.Errorf("%s: %s is there twice", cmd, key)
		}
		all[key] = o
	}
}

// TestChart holds the Helm chart against the kustomization and the CRDs: the same objects, but for the namespace,
// which Helm's users make by themselves.
func TestChart(t *testing.T) {
	want := render(t, "kustomize", ".")
	const namespace = "Namespace <nil> nodevirt"
	if want[namespace] == nil || len(want) < 10 {
		t.Fatalf("the kustomization makes %d objects, without the namespace", len(want))
	}
	delete(want, namespace)
	for name, text := range generated(t, "crds") {
		var crd object
		if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		meta, _ := crd["metadata"].(object)
		want[fmt.Sprint("CustomResourceDefinition <nil> ", meta["name"])] = crd
	}
	if diff := cmp.Diff(want, render(t, "helm", "helm/nodevirt")); diff != "" {
		t.Errorf("the chart differs (-kustomization +chart):\n%s", diff)
	}
}

// TestChartInstaller holds the chart's installer against its kustomization.
func TestChartInstaller(t *testing.T) {
	got := render(t, "helm", "helm/nodevirt", "-set", "node.install=true")
	for name := range render(t, "helm", "helm/nodevirt") {
		delete(got, name)
	}
	want := render(t, "kustomize", "installer")
	if len(want) < 7 {
		t.Fatalf("the kustomization makes %d objects", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the chart differs (-kustomization +chart):\n%s", diff)
	}
	all := render(t, "helm", "helm/nodevirt", "-set", "node.install=true", "-set", "node.namespace=elsewhere",
		"-set", "node.image.repository=example.com/i", "-set", "node.image.digest=sha256:1234", "-set", "node.image.pullPolicy=Always",
		"-set", "imagePullSecrets[0].name=pull", "-set", "node.resources.requests.memory=77Mi",
		"-set", "node.priorityClassName=mine", "-set", "node.tolerations[0].key=t")
	text, err := yaml.Marshal(all["DaemonSet elsewhere nodevirt-installer"])
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{
		"image: example.com/i@sha256:1234", "imagePullPolicy: Always", "- name: pull", "memory: 77Mi", "priorityClassName: mine", "key: t",
	} {
		if !strings.Contains(string(text), v) {
			t.Errorf("the DaemonSet has no %q:\n%s", v, text)
		}
	}
	if all["Namespace <nil> elsewhere"] == nil {
		t.Error("the namespace has another name")
	}
	for name, o := range all {
		text, err := yaml.Marshal(o)
		if err != nil || strings.Contains(string(text), "namespace: nodevirt-installer\n") ||
			strings.Contains(string(text), "serviceaccount:nodevirt-installer:") {
			t.Errorf("%s is, or points, to the default's namespace: %v\n%s", name, err, text)
		}
	}
}

// TestChartExportProxy holds the chart's export proxy against its kustomization.
func TestChartExportProxy(t *testing.T) {
	got := render(t, "helm", "helm/nodevirt", "-set", "exportProxy.enabled=true")
	for name := range render(t, "helm", "helm/nodevirt") {
		delete(got, name)
	}
	want := render(t, "kustomize", "export-proxy")
	if len(want) < 11 {
		t.Fatalf("the kustomization makes %d objects", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the chart differs (-kustomization +chart):\n%s", diff)
	}
	all := render(t, "helm", "helm/nodevirt", "-namespace", "elsewhere", "-set", "exportProxy.enabled=true",
		"-set", "exportProxy.replicas=1", "-set", "exportProxy.resources.requests.memory=77Mi",
		"-set", "image.repository=example.com/c", "-set", "image.digest=sha256:1234", "-set", "image.pullPolicy=Always",
		"-set", "imagePullSecrets[0].name=pull", "-set", "nodeSelector.a=b", "-set", "tolerations[0].key=t")
	text, err := yaml.Marshal(all["Deployment elsewhere virt-exportproxy"])
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{
		"image: example.com/c@sha256:1234", "imagePullPolicy: Always", "- name: pull", "replicas: 1", "memory: 77Mi", "a: b", "key: t",
	} {
		if !strings.Contains(string(text), v) {
			t.Errorf("the Deployment has no %q:\n%s", v, text)
		}
	}
	for name, o := range all {
		if text, err := yaml.Marshal(o); err != nil || strings.Contains(string(text), "namespace: nodevirt\n") {
			t.Errorf("%s is, or points, to the default's namespace: %v\n%s", name, err, text)
		}
	}
}

// TestChartValues: each value reaches its object, and nothing stays in the namespace of the default.
func TestChartValues(t *testing.T) {
	all := render(t, "helm", "helm/nodevirt", "-namespace", "elsewhere",
		"-set", "image.repository=example.com/c", "-set", "image.digest=sha256:1234", "-set", "image.pullPolicy=Always",
		"-set", "imagePullSecrets[0].name=pull", "-set", "replicas=3", "-set", "resources.requests.memory=77Mi",
		"-set", "priorityClassName=mine", "-set", "nodeSelector.a=b", "-set", "tolerations[0].key=t",
		"-set", "affinity.nodeAffinity.x=y", "-set", "args[0]=--verbose", "-set", "env[0].name=E",
		"-set", "vms=10000", "-set", "runtimeClass.handler=qemu", "-set", "runtimeClass.overhead.memory=123Mi",
		"-set", "runtimeClass.nodeSelector.c=d", "-set", "runtimeClass.tolerations[0].key=u")
	for _, v := range []struct{ object, want string }{
		{"Deployment elsewhere nodevirt-controller", "image: example.com/c@sha256:1234"},
		{"Deployment elsewhere nodevirt-controller", "imagePullPolicy: Always"},
		{"Deployment elsewhere nodevirt-controller", "- name: pull"},
		{"Deployment elsewhere nodevirt-controller", "replicas: 3"},
		{"Deployment elsewhere nodevirt-controller", "memory: 77Mi"},
		{"Deployment elsewhere nodevirt-controller", "priorityClassName: mine"},
		{"Deployment elsewhere nodevirt-controller", "memory: 512Mi"},
		{"Deployment elsewhere nodevirt-controller", "a: b"},
		{"Deployment elsewhere nodevirt-controller", "key: t"},
		{"Deployment elsewhere nodevirt-controller", "x: \"y\""},
		{"Deployment elsewhere nodevirt-controller", "- --verbose"},
		{"Deployment elsewhere nodevirt-controller", "- name: E"},
		{"RuntimeClass <nil> vm", "handler: qemu"},
		{"RuntimeClass <nil> vm", "memory: 123Mi"},
		{"RuntimeClass <nil> vm", "c: d"},
		{"RuntimeClass <nil> vm", "key: u"},
	} {
		text, err := yaml.Marshal(all[v.object])
		if err != nil || !strings.Contains(string(text), v.want) {
			t.Errorf("%s has no %q: %v\n%s", v.object, v.want, err, text)
		}
	}
	for name, o := range all {
		text, err := yaml.Marshal(o)
		if err != nil || strings.Contains(string(text), "namespace: nodevirt\n") ||
			strings.Contains(string(text), "serviceaccount:nodevirt:") {
			t.Errorf("%s is, or points, to the default's namespace: %v\n%s", name, err, text)
		}
	}
}

// TestChartNamespace: in another namespace, no text of any object names the default's namespace. The controller may create the Secret of its
// certificate in its own namespace.
func TestChartNamespace(t *testing.T) {
	all := render(t, "helm", "helm/nodevirt", "-namespace", "elsewhere", "-set", "exportProxy.enabled=true", "-set", "node.install=true")
	names := regexp.MustCompile(`"nodevirt"|serviceaccount:nodevirt:|namespace: nodevirt\b[^-]|nodevirt\.svc`)
	for name, o := range all {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if names.MatchString(line) && !strings.Contains(line, "app.kubernetes.io/") {
				t.Errorf("%s points to the default's namespace: %s", name, line)
			}
		}
	}
}

// TestKustomizationNamespace: with the component, the kustomization is that of another namespace, as the chart is.
func TestKustomizationNamespace(t *testing.T) {
	dir := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if here, err = filepath.Rel(filepath.Join(dir, "my-nodevirt"), here); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"my-nodevirt/kustomization.yaml": "resources: [" + here + "]\ncomponents: [name, " + here + "/namespace]\n",
		"my-nodevirt/name/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n" +
			"  - target: {kind: Namespace, name: nodevirt}\n    patch: '[{\"op\": \"replace\", \"path\": \"/metadata/name\", \"value\": \"elsewhere\"}]'\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := render(t, "kustomize", filepath.Join(dir, "my-nodevirt"))
	const namespace = "Namespace <nil> elsewhere"
	if got[namespace] == nil {
		t.Errorf("no %s", namespace)
	}
	delete(got, namespace)
	want := render(t, "helm", "helm/nodevirt", "-namespace", "elsewhere")
	for name := range want {
		if strings.HasPrefix(name, "CustomResourceDefinition ") {
			delete(want, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 30 {
		t.Errorf("%d objects; the kustomization differs (-chart +kustomization):\n%s", len(got), diff)
	}
}

// TestChartRefusesValues: a value that is misspelt or of another type is no value that is left out without a word.
func TestChartRefusesValues(t *testing.T) {
	needs.Parts(t, "bin/render")
	for set, want := range map[string]string{
		"vms=abc": "vms", "vms=-1": "vms", "image.digets=sha256:1234": "digets", "image.digest=1234": "digest", "imag.tag=1": "imag", "replicas=two": "replicas",
		"image.pullPolicy=Sometimes": "pullPolicy", "runtimeClass.handler=VM": "handler", "runtimeClass.overhead.memory=lots": "memory",
		"resources.limit.memory=1Gi": "limit", "node.install=perhaps": "install", "node.namespace=A": "namespace",
		"exportProxy.enable=true": "enable", "env[0].nme=E": "nme", "tolerations=x": "tolerations",
	} {
		out, err := exec.CommandContext(t.Context(), "../bin/render", "helm", "helm/nodevirt", "-set", set).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("--set %s: %v, %s; want an error with %q", set, err, out[:min(len(out), 300)], want)
		}
	}
}

// TestChartSchema: the schema has all values of the chart, and no others.
func TestChartSchema(t *testing.T) {
	read := func(name string, into any) {
		text, err := os.ReadFile("helm/nodevirt/" + name)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var values, schema object
	read("values.yaml", &values)
	read("values.schema.json", &schema)
	var compare func(path string, values, schema object)
	compare = func(path string, values, schema object) {
		properties, _ := schema["properties"].(object)
		if properties == nil {
			return
		}
		for name, value := range values {
			known, _ := properties[name].(object)
			if known == nil {
				t.Errorf("the schema has no %s%v", path, name)
			}
			if below, ok := value.(object); ok {
				compare(fmt.Sprint(path, name, "."), below, known)
			}
		}
	}
	compare("", values, schema)
	if len(values) < 10 || schema["additionalProperties"] != false {
		t.Errorf("%d values, additional ones %v", len(values), schema["additionalProperties"])
	}
}

// TestChartKeepsRuntimeClass: the class is left out on demand.
func TestChartKeepsRuntimeClass(t *testing.T) {
	if all := render(t, "helm", "helm/nodevirt", "-set", "runtimeClass.create=false"); all["RuntimeClass <nil> vm"] != nil {
		t.Error("the chart makes a RuntimeClass")
	}
}

// TestChartLimit: a memory limit of the values replaces that by the number of VMs.
func TestChartLimit(t *testing.T) {
	all := render(t, "helm", "helm/nodevirt", "-set", "vms=10000", "-set", "resources.limits.memory=1Gi", "-set", "resources.limits.cpu=2")
	text, err := yaml.Marshal(all["Deployment nodevirt nodevirt-controller"])
	if err != nil || strings.Contains(string(text), "512Mi") || !strings.Contains(string(text), "memory: 1Gi") || !strings.Contains(string(text), "cpu: 2") {
		t.Errorf("%v\n%s", err, text)
	}
}
