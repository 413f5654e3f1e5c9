// What Grafana's core sets up before its libraries work: transformations, options of fields, links.
import {
  FieldConfigOptionsRegistry,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  locationUtil,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
} from "@grafana/data";
import { firstValueFrom } from "rxjs";

const STANDARD = "unit min max decimals displayName color mappings thresholds noValue links filterable description".split(" ");
const CUSTOM =
  "align axisSoftMin cellOptions drawStyle fillOpacity filterable hideFrom lineWidth minWidth spanNulls stacking width wrapText".split(" ");

const option = (id, path, isCustom) => ({
  id,
  isCustom,
  name: path,
  path,
  editor: () => null,
  override: () => null,
  process: (value) => value,
  settings: {},
  shouldApply: () => true,
});
const registry = new FieldConfigOptionsRegistry(() => [
  ...STANDARD.map((each) => option(each, each, false)),
  ...CUSTOM.map((each) => option(`custom.${each}`, each, true)),
]);

export function setUp() {
  const byId = new Map(Object.values(standardTransformers).map((each) => [each.id, each]));
  standardTransformersRegistry.setInit(() =>
    [...byId.values()].map((each) => ({ ...each, transformation: async () => each, editor: () => null })),
  );
  standardFieldConfigEditorRegistry.setInit(() => registry.list());
  locationUtil.initialize({ config: { appSubUrl: "" }, getVariablesUrlParams: () => ({}), getTimeRangeForUrl: () => ({}) });
}

/** Transform the frames of a panel and give their fields what the panel says of them. */
export async function prepared(panel, frames, theme) {
  const steps = panel.transformations ?? [];
  const data = steps.length ? await firstValueFrom(transformDataFrame(steps, frames, { interpolate: (text) => text })) : frames;
  const fieldConfig = structuredClone(panel.fieldConfig);
  fieldConfig.defaults.custom ??= {};
  const replaceVariables = (text) => text;
  const fields = { data, fieldConfig, fieldConfigRegistry: registry, replaceVariables, theme, timeZone: "utc" };
  const result = applyFieldOverrides(fields);
  cacheFieldDisplayNames(result);
  return result;
}
