{{- /* search.js reads it. It is a script, not JSON: browsers read no JSON beside a page that is a file. */ -}}
{{- $pages := slice -}}
{{- range site.Pages -}}
{{- $pages = $pages | append (dict "title" (partial "title.html" .) "url" (cond .IsHome "index.html" (strings.TrimPrefix "/" .RelPermalink))
  "text" (.Plain | htmlUnescape | strings.ReplaceRE `[\s\x{2500}-\x{257f}]+` " ")) -}}
{{- end -}}
window.searchIndex = {{ $pages | jsonify }};
