package main

import apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// undescribed takes the descriptions out of a schema: with them a CRD of two
// versions is larger than the annotation that kubectl apply keeps it in.
func undescribed(s *apiext.JSONSchemaProps) {
	each(s, func(s *apiext.JSONSchemaProps) { s.Description = "" })
}

// keepUnknown makes the API server keep fields that a schema doesn't have. It
// would drop them before admission sees them, and a misspelt field would be
// ignored without a word.
func keepUnknown(s *apiext.JSONSchemaProps) {
	yes := true
	each(s, func(s *apiext.JSONSchemaProps) {
		if s.Type == "object" && s.AdditionalProperties == nil {
			s.XPreserveUnknownFields = &yes
		}
	})
}

// each calls f for a schema and all that are in it.
func each(s *apiext.JSONSchemaProps, f func(*apiext.JSONSchemaProps)) {
	f(s)
	for name, property := range s.Properties {
		each(&property, f)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		each(s.Items.Schema, f)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		each(s.AdditionalProperties.Schema, f)
	}
}
