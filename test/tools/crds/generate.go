package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/tools/go/packages"
	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
)

// generate returns the CRD of each definition as decoded JSON.
func generate(definitions []definition) ([]map[string]any, error) {
	parsers := map[string]*parser{} // by package of the types
	var all []map[string]any
	for _, d := range definitions {
		p, ok := parsers[d.Types]
		if !ok {
			var err error
			if p, err = load(d.Types); err != nil {
				return nil, fmt.Errorf("%s: %w", d.Types, err)
			}
			parsers[d.Types] = p
		}
		tree, err := p.generate(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.Kind, err)
		}
		all = append(all, tree)
	}
	for types, p := range parsers {
		// The loader skips what schemas do not need, so the types are incomplete: that is
		// no error.
		if loader.PrintErrors(p.roots, packages.TypeError) {
			return nil, fmt.Errorf("%s: the types have errors", types)
		}
	}
	return all, nil
}

// parser reads the types of one package.
type parser struct {
	crd.Parser
	roots []*loader.Package
}

func load(types string) (*parser, error) {
	roots, err := loader.LoadRoots(types)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	p := &parser{roots: roots, Parser: crd.Parser{
		Collector:                  &markers.Collector{Registry: &markers.Registry{}},
		Checker:                    &loader.TypeChecker{NodeFilters: []loader.NodeFilter{crd.Generator{}.CheckFilter()}},
		AllowDangerousTypes:        true, // floats, in the KubeVirt object's type
		GenerateEmbeddedObjectMeta: false,
	}}
	if err := (crd.Generator{}).RegisterMarkers(p.Collector.Registry); err != nil {
		return nil, err
	}
	crd.AddKnownTypes(&p.Parser)
	for _, root := range roots {
		p.NeedPackage(root)
	}
	return p, nil
}

func (p *parser) generate(d definition) (map[string]any, error) {
	of := schema.GroupKind{Group: d.Group, Kind: d.Kind}
	p.NeedCRDFor(of, nil)
	made, ok := p.CustomResourceDefinitions[of]
	if !ok {
		return nil, errors.New("there is no such type")
	}
	if err := d.complete(&made); err != nil {
		return nil, err
	}
	return decoded(made)
}

// complete adds the fields to a CRD that the types do not have.
func (d definition) complete(made *apiext.CustomResourceDefinition) error {
	crd.FixTopLevelMetadata(*made)
	made.Labels = map[string]string{"app.kubernetes.io/name": "nodevirt"}
	made.Spec.Names.ShortNames = d.Details.ShortNames
	if d.Details.ClusterScoped {
		made.Spec.Scope = apiext.ClusterScoped
	} else {
		made.Spec.Names.Categories = []string{"all"}
	}
	made.Spec.Conversion = &apiext.CustomResourceConversion{Strategy: apiext.NoneConverter}
	if n := len(made.Spec.Versions); n != 1 {
		return fmt.Errorf("%d versions in the types; 1 is expected", n)
	}
	v := &made.Spec.Versions[0]
	v.Served, v.Storage = true, true
	v.AdditionalPrinterColumns = d.Details.columns()
	switch {
	case d.Details.Deprecated != "":
		v.Deprecated, v.DeprecationWarning = true, &d.Details.Deprecated
	case d.Details.Status:
		v.Subresources = &apiext.CustomResourceSubresources{
			Status: &apiext.CustomResourceSubresourceStatus{}, Scale: d.Details.scale(),
		}
	}
	root := v.Schema.OpenAPIV3Schema
	yes := true
	root.XPreserveUnknownFields = &yes
	spec := root.Properties["spec"]
	keepUnknown(&spec)
	root.Properties["spec"] = spec
	if d.Older == "" {
		return nil
	}
	second := *v.DeepCopy()
	undescribed(second.Schema.OpenAPIV3Schema)
	second.Name, second.Storage, second.Deprecated = d.Older, false, true
	warning := fmt.Sprintf("%s/%s is deprecated; use %[1]s/%[3]s", d.Group, d.Older, v.Name)
	second.DeprecationWarning = &warning
	made.Spec.Versions = append(made.Spec.Versions, second)
	return nil
}

// decoded returns a CRD without the fields that only an API server writes.
func decoded(made apiext.CustomResourceDefinition) (map[string]any, error) {
	text, err := json.Marshal(made)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	delete(tree, "status")
	delete(tree["metadata"].(map[string]any), "creationTimestamp")
	return tree, nil
}

func plural(crd map[string]any) string {
	names := crd["spec"].(map[string]any)["names"].(map[string]any)
	return names["plural"].(string)
}
