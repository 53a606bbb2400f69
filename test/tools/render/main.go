// Program render prints the objects of a kustomization or a Helm chart, as kubectl and helm would
// apply them, without a cluster.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const usage = `usage: render kustomize DIR
       render helm DIR [-namespace NAME] [-set NAME=VALUE]...`

func main() {
	text, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

func run(args []string) (string, error) {
	if len(args) < 2 {
		return "", errors.New(usage)
	}
	switch args[0] {
	case "kustomize":
		return kustomize(args[1])
	case "helm":
		var set list
		flags := flag.NewFlagSet("render helm", flag.ContinueOnError)
		namespace := flags.String("namespace", "nodevirt", "`name` of the release's namespace")
		flags.Var(&set, "set", "a value, as of helm's flag --set")
		if err := flags.Parse(args[2:]); err != nil {
			return "", err
		}
		return helm(args[1], *namespace, set)
	default:
		return "", errors.New(usage)
	}
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func kustomize(dir string) (string, error) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", err
	}
	text, err := made.AsYaml()
	return string(text), err
}

// helm renders a chart as "helm install" does, its folder of CRDs included.
func helm(dir, namespace string, set []string) (string, error) {
	chart, err := loader.LoadDir(dir)
	if err != nil {
		return "", err
	}
	given := map[string]any{}
	for _, s := range set {
		if err := strvals.ParseInto(s, given); err != nil {
			return "", err
		}
	}
	release := chartutil.ReleaseOptions{Name: "nodevirt", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, release, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, crd := range chart.CRDObjects() {
		parts = append(parts, string(crd.File.Data))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if text := strings.TrimSpace(files[name]); text != "" && path.Base(name) != "NOTES.txt" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n---\n") + "\n", nil
}
