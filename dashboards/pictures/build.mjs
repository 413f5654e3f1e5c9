// Bundles the page with Grafana's libraries into dist/.
import * as esbuild from "esbuild";

const inline = Object.fromEntries([".svg", ".woff", ".woff2", ".ttf", ".png"].map((ending) => [ending, "dataurl"]));

await esbuild.build({
  bundle: true,
  conditions: ["browser", "module", "import"],
  define: { global: "window", "process.env.NODE_ENV": '"production"' },
  entryPoints: ["src/board.jsx"],
  format: "esm",
  loader: inline,
  logLevel: "error",
  minify: true,
  outdir: "dist",
  splitting: true,
});
