// JupyterLab highlights each code cell of a notebook in the language of its kernel, which is Python. This extension
// gives the cells that begin with %%cuda C++ instead: its colours, its indentation and its comments.
// It is a module-federation container written by hand: what it needs of JupyterLab, JupyterLab hands to `init`.

(() => {
  const CPP = "text/x-c++src";
  let shared; // package → version → {get}, as JupyterLab's own packages share each other

  async function load(name) {
    const [provider] = Object.values(shared[name]);
    return (await provider.get())();
  }

  function language(cell, notebook) {
    return /^\s*%%cuda\b/.test(cell.sharedModel.getSource()) ? CPP : notebook.codeMimetype;
  }

  function highlight(cell, notebook) {
    const wanted = language(cell, notebook);
    if (cell.type === "code" && cell.mimeType !== wanted) cell.mimeType = wanted;
  }

  function follow(notebook) {
    const followed = new WeakSet();
    const all = () => {
      for (const cell of notebook.model?.cells ?? []) {
        if (!followed.has(cell)) {
          followed.add(cell);
          // JupyterLab sets every cell back to Python whenever the kernel has told its language.
          cell.mimeTypeChanged.connect(() => highlight(cell, notebook));
        }
        highlight(cell, notebook);
      }
    };
    notebook.modelChanged.connect(all);
    notebook.modelContentChanged.connect(all);
    all();
  }

  async function extension() {
    const { INotebookTracker } = await load("@jupyterlab/notebook");
    const plugin = {
      id: "convladder:cuda-cells",
      description: "Highlights %%cuda cells as C++.",
      autoStart: true,
      requires: [INotebookTracker],
      activate: (_, tracker) => {
        tracker.widgetAdded.connect((_, panel) => follow(panel.content));
        tracker.forEach((panel) => follow(panel.content));
      },
    };
    return { __esModule: true, default: plugin };
  }

  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.convladder = {
    init: (scope) => { shared = scope; },
    get: async () => { const made = await extension(); return () => made; },
  };
})();
