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

const (
	types = "kubevirt.io/api/core/v1"
	group = "kubevirt.io"
	// older is served too; its objects have the same fields.
	older        = "v1alpha3"
	olderWarning = "kubevirt.io/v1alpha3 is deprecated; use kubevirt.io/v1"
)

// generate returns the CRD of each kind as decoded JSON.
func generate() ([]map[string]any, error) {
	roots, err := loader.LoadRoots(types)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", types, err)
	}
	parser := &crd.Parser{
		Collector:                  &markers.Collector{Registry: &markers.Registry{}},
		Checker:                    &loader.TypeChecker{NodeFilters: []loader.NodeFilter{crd.Generator{}.CheckFilter()}},
		AllowDangerousTypes:        true, // floats, in the KubeVirt object's type
		GenerateEmbeddedObjectMeta: false,
	}
	if err := (crd.Generator{}).RegisterMarkers(parser.Collector.Registry); err != nil {
		return nil, err
	}
	crd.AddKnownTypes(parser)
	for _, root := range roots {
		parser.NeedPackage(root)
	}
	var all []map[string]any
	for _, k := range kinds() {
		none := 0
		of := schema.GroupKind{Group: group, Kind: k.name}
		parser.NeedCRDFor(of, &none)
		made, ok := parser.CustomResourceDefinitions[of]
		if !ok {
			return nil, fmt.Errorf("%s has no type %s", types, k.name)
		}
		if err := k.complete(&made); err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		tree, err := decoded(made)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		all = append(all, tree)
	}
	// The loader leaves out what schemas don't need, so that types are incomplete.
	if loader.PrintErrors(roots, packages.TypeError) {
		return nil, errors.New("the types have errors")
	}
	return all, nil
}

// complete adds to a CRD what the types don't tell.
func (k kind) complete(made *apiext.CustomResourceDefinition) error {
	crd.FixTopLevelMetadata(*made)
	made.Labels = map[string]string{"app.kubernetes.io/name": "nodevirt"}
	made.Spec.Names.ShortNames = k.shortNames
	made.Spec.Names.Categories = []string{"all"}
	made.Spec.Conversion = &apiext.CustomResourceConversion{Strategy: apiext.NoneConverter}
	if n := len(made.Spec.Versions); n != 1 {
		return fmt.Errorf("%d versions in the types; 1 is expected", n)
	}
	v := &made.Spec.Versions[0]
	v.Served, v.Storage = true, true
	v.AdditionalPrinterColumns = k.columns
	v.Subresources = &apiext.CustomResourceSubresources{Status: &apiext.CustomResourceSubresourceStatus{}, Scale: k.scale}
	root := v.Schema.OpenAPIV3Schema
	undescribed(root)
	yes := true
	root.XPreserveUnknownFields = &yes
	spec := root.Properties["spec"]
	keepUnknown(&spec)
	root.Properties["spec"] = spec

	second := *v.DeepCopy()
	second.Name, second.Storage, second.Deprecated = older, false, true
	warning := olderWarning
	second.DeprecationWarning = &warning
	made.Spec.Versions = append(made.Spec.Versions, second)
	return nil
}

// decoded is a CRD without the fields that only an API server writes.
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
