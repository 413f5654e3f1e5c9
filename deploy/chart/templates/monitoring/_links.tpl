{{/* Address of the exporter for links of rules and boards: export.url of the configuration; empty if there is none. */}}
{{- define "isrwatch.url" -}}
{{ (include "isrwatch.section" (list . "export") | fromJson).url | default "" | trimSuffix "/" }}
{{- end -}}

{{/* Folder of rules and boards: those with links, if the address is known. A checkout that is not packaged has none. */}}
{{- define "isrwatch.generated" -}}
{{- if and (include "isrwatch.url" .) (.Files.Get "linked/prometheus-rule.yaml") -}}
linked
{{- else -}}
generated
{{- end -}}
{{- end -}}

{{/* A generated file, with its links. Takes [root, name]. */}}
{{- define "isrwatch.generated-file" -}}
{{- $root := index . 0 -}}
{{ $root.Files.Get (printf "%s/%s" (include "isrwatch.generated" $root) (index . 1)) | replace "https://address-of-the-exporter" (include "isrwatch.url" $root) }}
{{- end -}}
